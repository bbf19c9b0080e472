"""What can be asked for, and what is refused before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import UsageError
from kernelmark.isolation.channel import plain, typed
from kernelmark.kernelfile.request import Baseline, Language, Request, choose_language, parse_baselines
from kernelmark.kernelfile.worker import budget_of
from kernelmark.timing.budget import counts

Asked = Callable[..., Request]


@pytest.fixture(scope="module")
def two_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    for name in ("k.py", "r.py"):
        (folder / name).write_text("")
    return folder / "k.py", folder / "r.py"


@pytest.mark.spec("K5")
def test_the_defaults_are_those_of_the_table(write) -> None:
    asked = Request(write("k.py", ""), write("r.py", ""), "out")  # type: ignore[arg-type]
    assert (asked.num_warmup, asked.num_trials, asked.discard_first, asked.prewarm_calls) == (5, 100, 1, 1)
    assert (asked.ptr_size, asked.arch, asked.gpu, asked.seed) == (0, "auto", 0, 42)
    assert asked.baselines == (Baseline.EAGER,)
    assert (asked.atol, asked.rtol, asked.timing_method) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("eager", ["pytorch-eager"]), ("torch", ["pytorch-eager"]), ("pytorch,torch-eager", ["pytorch-eager"]),
        ("compile", ["torch-compile"]), ("compiled,torch.compile", ["torch-compile"]),
        ("flash-infer,flash_infer", ["flashinfer"]), ("none", []), ("off", []),
        ("all", ["pytorch-eager", "torch-compile", "flashinfer"]),
        ("flashinfer, default", ["flashinfer", "pytorch-eager", "torch-compile"]),
    ],
)  # fmt: skip
def test_baselines_have_aliases_and_duplicates_collapse(text: str, found: list[str]) -> None:
    assert list(parse_baselines(text)) == found


def test_an_unknown_baseline_is_refused_with_the_names() -> None:
    with pytest.raises(UsageError, match="pytorch-eager, torch-compile, flashinfer"):
        parse_baselines("eager,cublas")


@pytest.mark.spec("K1")
@pytest.mark.parametrize(
    ("asked", "file", "language"),
    [
        ("auto", "k.py", Language.TRITON), ("auto", "k.cu", Language.CUDA_CPP), ("auto", "k.cpp", Language.CPP),
        ("auto", "k.c", Language.CPP), ("cutlass", "k.cu", Language.CUTLASS), ("torch", "k.py", Language.TORCH),
        ("cute-dsl", "k.py", Language.CUTE_DSL),
    ],
)  # fmt: skip
def test_auto_goes_by_the_suffix_and_the_rest_is_explicit(asked, file, language, tmp_path) -> None:
    assert choose_language(asked, tmp_path / file) is language


@pytest.mark.parametrize(("asked", "file"), [("auto", "k.txt"), ("triton", "k.cu"), ("cuda", "k.cu")])
def test_a_language_that_does_not_fit_the_file_is_refused(asked: str, file: str, tmp_path) -> None:
    with pytest.raises(UsageError):
        choose_language(asked, tmp_path / file)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("num_trials", 0, "--num-trials=0: give a whole number of at least 3"),
        ("num_trials", 2, "at least 3"), ("num_warmup", -1, "at least 0"), ("prewarm_calls", -1, "at least 0"),
        ("ptr_size", -1, "at least 0"), ("atol", -1.0, "at least 0"), ("rtol", float("nan"), "at least 0"),
        ("timeout_s", 0.0, "above 0"), ("seed", -1, "at least 0"),
        ("timing_method", "nope", "no such one; there are: cuda_event"),
        ("timing_method", "cuda_evnt", "did you mean 'cuda_event'"), ("arch", "", "--arch=: give an architecture"),
        ("arch", "hopper", "sm_90"), ("device", "", "--device=: give a device"), ("values", {"N": " "}, "no value"),
    ],
)  # fmt: skip
def test_bad_values_are_refused(asked: Asked, name: str, value: float, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        asked(**{name: value})


def test_a_request_reaches_the_worker_as_it_was(asked: Asked) -> None:
    there = asked(values={"N": "3"}, atol=0.1, compile_flags=("-g",), baselines="all", timeout_s=1.5)
    assert typed(Request, json.loads(json.dumps(plain(there)))) == there


def test_the_solution_is_not_its_own_reference(asked: Asked) -> None:
    there = asked()
    with pytest.raises(UsageError, match="same file"):
        Request(there.solution, there.solution, there.output_dir, implementation="torch")


def test_the_names_of_the_scripts_and_ours_mean_the_same_timers(asked: Asked) -> None:
    found = [asked(timing_method=name).timer for name in ("cuda_event", "host_time", "cupti", None)]
    assert found == ["device_events", "host", "cupti", None]


@given(trials=st.integers(3, 2000), estimate_ns=st.floats(1, 1e12), prepare_ns=st.floats(0, 1e12))
def test_the_trials_asked_for_are_the_samples_taken(
    two_files: tuple[Path, Path], trials: int, estimate_ns: float, prepare_ns: float
) -> None:
    asked = Request(*two_files, "out", implementation="torch", num_trials=trials)  # type: ignore[arg-type]
    found = counts(estimate_ns, prepare_ns, budget_of(asked))
    assert found.samples == trials
    assert found.blocks == min(10, trials // 2)


def test_rounds_that_are_not_kept_are_warm_up_rounds(asked: Asked) -> None:
    assert budget_of(asked(num_warmup=7, discard_first=2)).warmup_count == 9
