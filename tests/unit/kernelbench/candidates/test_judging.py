"""Candidates judged for real: none that cheats is verified, each that is honest is, and each failure has its name."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelmark.kernelbench.candidates.finding import find_candidates
from kernelmark.kernelbench.candidates.job import Baseline, Settings
from kernelmark.kernelbench.candidates.judged import Judged
from kernelmark.kernelbench.candidates.judging import Judging, fingerprint_of, judge
from kernelmark.kernelbench.candidates.starting import Starter, starter_for
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelbench.suite import load_suite
from kernelmark.prefork import Limits
from kernelmark.records import Cache, Check, read_run

ROOT = Path(__file__).parents[4]
SUITE = ROOT / "examples" / "KernelBench"
DATA = ROOT / "tests" / "data" / "candidates"

QUICK = Settings(device="cpu", seeds=2, baselines=(Baseline.EAGER,), iterations=8, cache=Cache.WARM)
LIMITS = Limits(time_s=120.0, memory_bytes=8 << 30)

JudgeAll = Callable[..., dict[str, Judged]]


@pytest.fixture(scope="module")
def starter() -> Iterator[Starter]:
    """One server for all tests that run candidates."""
    with starter_for("cpu") as server:
        yield server


@pytest.fixture(scope="module")
def judge_all(starter: Starter, tmp_path_factory: pytest.TempPathFactory) -> JudgeAll:
    """Judge every candidate in a folder; give what became of each, by its file's name."""

    def run(
        folder: Path, *, settings: Settings = QUICK, limits: Limits = LIMITS, out: Path | None = None
    ) -> dict[str, Judged]:
        judging = Judging(
            SUITE / "models", out or tmp_path_factory.mktemp("out"), settings=settings, limits=limits
        )
        found = find_candidates(folder, load_suite(SUITE / "own.yaml").entries)
        return {each.path.stem: judge(each, judging, starter) for each in found}

    return run


OFF = "does not match the reference: .* elements are off"
CHEATS = {
    "another_dtype": "output has dtype bfloat16, expected float32",
    "another_thread": "left 1 thread behind",
    "cached_by_pointer": OFF,
    "cached_by_shape": OFF,
    "freed_memory": OFF,
    "from_the_callers_frame": OFF,
    "from_the_collector": OFF,
    "half_of_it": OFF,
    "hard_coded_seed": OFF,
    "hard_coded_shape": r"output has shape \(128, 128\), expected \(256, 256\)",
    "idle_when_timed": "was right when it was checked and wrong (while it was timed|when it was called again)",
    "lazy_tensor": "a tensor subclass that may compute when it is looked at",
    "mean": OFF,
    "narrow_inside": OFF,
    "own_verdict": "left no record",
    "patched_check": "kernelmark.verify.verdict.check_outputs is now",
    "patched_clock": "time.perf_counter_ns is now",
    "patched_comparison": "torch.allclose is now",
    "patched_events": "torch.cuda.Event is now",
    "patched_for_a_moment": "right in its own process, and wrong where it was checked outside: draw 1 of 2: .* off",
    "precomputed": OFF,
    "slower_eager": r"torch.get_num_threads\(\) was \d and is 1",
    "slower_model": "Model.forward is now",
    "slower_operator": "operators of torch were overridden: aten/mm/CPU",
    "the_input_itself": OFF,
    "waiting_thread": "left 1 thread behind",
    "writes_its_input": r"candidate wrote to its inputs \(inputs\[0\]\)",
    "writes_its_input_and_copies": r"candidate wrote to its inputs \(inputs\[0\]\)",
    "zeros": OFF,
}


@pytest.fixture(scope="module")
def cheats(judge_all: JudgeAll) -> dict[str, Judged]:
    return judge_all(DATA / "adversarial")


def test_every_candidate_that_cheats_is_among_those_that_are_expected(cheats: dict[str, Judged]) -> None:
    assert set(cheats) == set(CHEATS)


@pytest.mark.parametrize("name", CHEATS)
def test_no_candidate_that_cheats_is_verified_and_the_reason_is_told(
    cheats: dict[str, Judged], name: str
) -> None:
    found = cheats[name]
    assert found.status is (Status.CRASH if name == "own_verdict" else Status.WRONG), found
    with pytest.raises(AssertionError, match=CHEATS[name]):
        raise AssertionError(found.message)
    assert (found.time_ns, found.speedups) == (None, {})


def test_honest_candidates_are_verified_timed_and_kept_with_their_reports(
    judge_all: JudgeAll, tmp_path: Path
) -> None:
    found = judge_all(DATA / "honest", out=tmp_path)
    assert {each.status for each in found.values()} == {Status.VERIFIED}, found
    assert set(found) == {
        "torch_ops",
        "slower",
        "fused",
        "other_names",
        "statistics_of_the_batch",
        "kept_by_content",
    }
    for each in found.values():
        assert each.time_ns is not None
        low, value, high = (getattr(each.speedups["eager"], name) for name in ("low", "value", "high"))
        assert low < value < high
        assert any("checked in a process that never loaded it" in note for note in each.notes)
    assert found["slower"].speedups["eager"].value < 1.0
    assert (found["kept_by_content"].speedups["eager"].low or 0.0) < 1.0  # nothing that is certain
    (note,) = (note for note in found["other_names"].notes if "not shared" in note)
    assert "Model's linear.weight, linear.bias; ModelNew's weight, bias" in note
    (run,) = (tmp_path / "candidates" / "level1-8_softmax-slower").iterdir()
    assert {"report.md", "report.json", "records.jsonl"} <= {each.name for each in run.iterdir()}
    rows = read_run(run).rows
    assert [(row.implementation, row.check) for row in rows] == [
        ("candidate", Check.VERIFIED),
        ("eager", Check.VERIFIED),
    ]
    assert rows[0].params["candidate"] == "level1/8_softmax/slower.py"


HEAD = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        "
FAILING = {
    "raises": (
        HEAD + "raise ValueError('not finished')",
        Status.RUN_FAILURE,
        "raised ValueError: not finished",
    ),
    "another_name": ("import torch\nclass Model: pass", Status.IMPORT_FAILURE, "defines no class ModelNew"),
    "no_python": ("class ModelNew(:", Status.IMPORT_FAILURE, "no_python.py:1: no Python"),
    "no_package": ("import nowhere_to_be_found", Status.UNAVAILABLE, "No module named 'nowhere_to_be_found'"),
    "takes_other_inputs": (
        HEAD.replace("x)", "x, y)") + "return x",
        Status.RUN_FAILURE,
        "missing 1 required",
    ),
    "returns_nothing": (HEAD + "pass", Status.WRONG, "output is None"),
    "returns_text": (HEAD + "return 'done'", Status.WRONG, "output is"),
    "aborts": (HEAD + "import os; os.abort()", Status.CRASH, "died of SIGABRT"),
    "exits": ("raise SystemExit(0)", Status.IMPORT_FAILURE, "SystemExit"),
    "leaves": ("import os; os._exit(0)", Status.CRASH, "with status 0, before its work was done"),
    "hungry": (HEAD + "return torch.ones(1 << 33) + x.sum()", Status.OUT_OF_MEMORY, "ran out of memory"),
}


def test_each_failure_is_a_row_with_its_status_and_its_reason(judge_all: JudgeAll, tmp_path: Path) -> None:
    folder = tmp_path / "level1" / "8_softmax"
    folder.mkdir(parents=True)
    for name, (source, _, _) in FAILING.items():
        (folder / f"{name}.py").write_text(source + "\n")
    found = judge_all(tmp_path, out=tmp_path / "out")
    for name, (_, status, words) in FAILING.items():
        assert found[name].status is status, found[name]
        assert words in found[name].message
    (run,) = (tmp_path / "out" / "candidates" / "level1-8_softmax-raises").iterdir()
    first, eager = read_run(run).rows
    assert (first.check, eager.check) == (Check.FAILED, Check.VERIFIED)
    assert "not finished" in (first.traceback or "")


def test_one_that_hangs_is_ended_at_the_limit(judge_all: JudgeAll, tmp_path: Path) -> None:
    path = tmp_path / "level1" / "8_softmax.py"
    path.parent.mkdir()
    path.write_text(HEAD + "import time; time.sleep(600)\n")
    (found,) = judge_all(tmp_path, limits=Limits(time_s=5.0)).values()
    assert (found.status, found.message) == (Status.TIMEOUT, "it did not end within 5 s")


@pytest.mark.skipif(
    shutil.which("g++") is None or shutil.which("ninja") is None, reason="inline C++ needs g++ and ninja"
)
def test_inline_cpp_is_built_judged_and_found_to_work_on_after_its_call(judge_all: JudgeAll) -> None:
    found = judge_all(DATA / "inline")
    assert found["inline_cpp"].status is Status.VERIFIED, found["inline_cpp"]
    assert found["inline_cpp"].speedups["eager"].value > 0
    detached = found["inline_cpp_detached"]
    assert detached.status is Status.WRONG
    assert "was not finished when its call had returned" in detached.message or "are off" in detached.message
    assert found["inline_cpp_wrong"].status is Status.COMPILE_FAILURE


def test_what_cannot_be_tried_is_said_without_a_process(starter: Starter, tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        "- kernel: level1/1_gone.py\n  input_shapes: [4x4]\n- kernel: level1/2_f32.py\n"
        "  input_shapes: [4x4]\n  dtypes: [f64]\n"
    )
    for name in ("1_gone", "2_f32"):
        (tmp_path / "level1").mkdir(exist_ok=True)
        (tmp_path / "level1" / f"{name}.py").write_text("")
    judging = Judging(tmp_path / "tree", tmp_path / "out", settings=QUICK)
    gone, other = find_candidates(tmp_path, load_suite(suite).entries)
    assert judge(gone, judging, starter).message.endswith("tree/level1/1_gone.py is not there")
    assert judge(other, judging, starter).message == "the suite has the problem in f64 only"
    assert judge(other, judging, starter).status is Status.UNAVAILABLE


def test_a_fingerprint_changes_with_the_file_the_settings_and_the_sizes(tmp_path: Path) -> None:
    path = tmp_path / "level1" / "8_a.py"
    path.parent.mkdir()
    path.write_text("one")
    (candidate,) = find_candidates(tmp_path, load_suite(SUITE / "own.yaml").entries)
    judging = Judging(SUITE / "models", tmp_path, settings=QUICK, limits=LIMITS)
    first = fingerprint_of(candidate, judging)
    assert fingerprint_of(candidate, judging) == first
    assert first != fingerprint_of(
        candidate, Judging(SUITE / "models", tmp_path, settings=QUICK.for_problem(1.0, 1.0))
    )
    path.write_text("two")
    assert fingerprint_of(candidate, judging) != first
