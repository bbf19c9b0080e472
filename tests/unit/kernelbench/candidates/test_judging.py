"""Candidates judged for real: none that cheats is verified, each that is honest is, and each failure has its name."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmark.errors import (
    CrashedError,
    DeviceMemoryError,
    ImplementationError,
    InputsModifiedError,
    KernelmarkError,
    ModelFileError,
    TimingError,
    UnavailableError,
    UsageError,
    VerificationError,
)
from kernelmark.isolation import Limits, decode, encode
from kernelmark.kernelbench.candidates.finding import find_candidates
from kernelmark.kernelbench.candidates.job import CANDIDATE, Baseline, Job, Judging, Settings
from kernelmark.kernelbench.candidates.judging import (
    Verdict,
    Workers,
    fate_of,
    fingerprint_of,
    judge,
    workers_for,
)
from kernelmark.kernelbench.candidates.page import Judged
from kernelmark.kernelbench.candidates.worker import raising_its_own
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelbench.suite import load_suite
from kernelmark.kernelfile.request import SecondCheck
from kernelmark.records import Cache, Cause, Check, Fate, Note, PassRecord, Role, Row, Stage, Timing, read_run
from kernelmark.stats import summarise

ROOT = Path(__file__).parents[4]
SUITE = ROOT / "examples" / "KernelBench"
DATA = ROOT / "tests" / "data" / "candidates"

QUICK = Settings(device="cpu", seeds=2, baselines=(Baseline.EAGER,), iterations=8, cache=Cache.WARM)
LIMITS = Limits(time_s=120.0, memory_bytes=8 << 30)

Judge = Callable[..., Judged]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """One server for all tests that run candidates."""
    with workers_for("cpu") as started:
        yield started


@pytest.fixture
def judge_one(workers: Workers, tmp_path: Path) -> Judge:
    """Judge the candidate of a name in a folder; its run is kept below ``out`` in the test's own folder."""

    def run(folder: Path, name: str, *, settings: Settings = QUICK, limits: Limits = LIMITS) -> Judged:
        judging = Judging(SUITE / "models", tmp_path / "out", settings=settings, limits=limits)
        found = find_candidates(folder, load_suite(SUITE / "own.yaml").entries)
        (candidate,) = (each for each in found if each.path.stem == name)
        return judge(candidate, judging, workers)

    return run


def names_in(folder: Path) -> set[str]:
    return {path.stem for path in folder.rglob("*.py")}


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
    "patched_for_a_moment": "wrong where it was checked outside: draw 1 of 2: .* off|and wrong while it was timed",
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


HONEST = {
    "fused",
    "kept_by_content",
    "other_names",
    "slower",
    "statistics_of_the_batch",
    "torch_ops",
}


def test_every_candidate_among_the_data_is_expected_to_end_somehow() -> None:
    assert names_in(DATA / "adversarial") == set(CHEATS)
    assert names_in(DATA / "honest") == HONEST


@pytest.mark.parametrize("name", CHEATS)
def test_no_candidate_that_cheats_is_verified_and_the_reason_is_told(judge_one: Judge, name: str) -> None:
    found = judge_one(DATA / "adversarial", name)
    assert found.status is (Status.CRASH if name == "own_verdict" else Status.WRONG), found
    assert re.search(CHEATS[name], found.message), found
    assert (found.time_ns, found.speedups) == (None, {})


@pytest.mark.parametrize("name", sorted(HONEST))
def test_an_honest_candidate_is_verified_timed_and_kept_with_its_reports(
    judge_one: Judge, name: str, tmp_path: Path
) -> None:
    found = judge_one(DATA / "honest", name)
    assert found.status is Status.VERIFIED, found
    assert found.time_ns is not None
    speedup = found.speedups["eager"]
    assert speedup.low is not None
    assert speedup.high is not None
    assert speedup.low < speedup.value < speedup.high
    assert any("checked in a process that never loaded it" in note for note in found.notes)
    unshared = [note for note in found.notes if "not shared" in note]
    if name == "other_names":
        assert "Model's linear.weight, linear.bias; ModelNew's weight, bias" in unshared[0]
    else:
        assert unshared == []
    if name in ("slower", "kept_by_content"):
        assert speedup.low < 1.0  # nothing that is certain
    (run,) = (tmp_path / "out" / "candidates").glob("*/*")
    assert {"report.md", "report.json", "records.jsonl"} <= {each.name for each in run.iterdir()}
    rows = read_run(run).rows
    assert [(row.implementation, row.check) for row in rows] == [
        ("candidate", Check.VERIFIED),
        ("eager", Check.VERIFIED),
    ]
    assert rows[0].params["candidate"] == found.name


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
    "hungry_when_loaded": (
        "import torch\nclass ModelNew(torch.nn.Module):\n    table = torch.ones(1 << 33)",
        Status.OUT_OF_MEMORY,
        "ran out of memory",
    ),
    "hungry_when_timed": (
        HEAD.replace("        ", "        self.n = getattr(self, 'n', 0) + 1; ", 1)
        + "return torch.ones(1 << (33 if self.n > 9 else 3)).sum() * 0 + x.softmax(-1)",
        Status.OUT_OF_MEMORY,
        "ran out of memory",
    ),
    "killed": (
        HEAD + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        Status.OUT_OF_MEMORY,
        "killed from outside, as the system does when memory runs out (at run)",
    ),
}


def write(folder: Path, name: str, source: str) -> Path:
    path = folder / "given" / "level1" / "8_softmax" / f"{name}.py"
    path.parent.mkdir(parents=True)
    path.write_text(source + "\n")
    return folder / "given"


@pytest.mark.parametrize("name", FAILING)
def test_each_failure_has_its_status_its_reason_and_its_rows(
    judge_one: Judge, name: str, tmp_path: Path
) -> None:
    source, status, words = FAILING[name]
    found = judge_one(write(tmp_path, name, source), name)
    assert found.status is status, found
    assert words in found.message
    (run,) = (tmp_path / "out" / "candidates").glob("*/*")
    first, eager = read_run(run).rows
    if status in (Status.CRASH, Status.OUT_OF_MEMORY):
        stage = {"leaves": "import", "hungry_when_loaded": "import", "hungry_when_timed": "time"}.get(
            name, "run"
        )
        assert first.params["cause"] == ("died" if status is Status.CRASH else "memory")
        assert first.params["stage"] == stage
    assert (first.implementation, first.check) == ("candidate", Check.FAILED)
    assert eager.check in (Check.UNVERIFIED, Check.VERIFIED)
    assert first.timing is eager.timing is None
    if status is Status.RUN_FAILURE:
        assert "ModelNew" in (first.traceback or "") or "forward" in (first.traceback or "")


def test_one_that_hangs_is_ended_at_the_limit(judge_one: Judge, tmp_path: Path) -> None:
    folder = write(tmp_path, "hangs", HEAD + "import time; time.sleep(600)")
    found = judge_one(folder, "hangs", limits=Limits(time_s=2.0))
    assert (found.status, found.message) == (
        Status.TIMEOUT,
        "it did not end within 2 s (at run)",
    )


INLINE = {
    "inline_cpp": (Status.VERIFIED, "^$"),
    "inline_cpp_detached": (Status.WRONG, "was not finished when its call had returned|are off"),
    "inline_cpp_wrong": (Status.COMPILE_FAILURE, "Error building extension"),
}


@pytest.mark.skipif(
    shutil.which("g++") is None or shutil.which("ninja") is None, reason="inline C++ needs g++ and ninja"
)
@pytest.mark.parametrize("name", INLINE)
def test_inline_cpp_is_built_judged_and_found_to_work_on_after_its_call(judge_one: Judge, name: str) -> None:
    status, words = INLINE[name]
    found = judge_one(DATA / "inline", name)
    assert found.status is status, found
    assert re.search(words, found.message), found


def test_what_cannot_be_tried_is_said_without_a_process(workers: Workers, tmp_path: Path) -> None:
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
    assert judge(gone, judging, workers).message.endswith("tree/level1/1_gone.py is not there")
    assert judge(other, judging, workers).message == "the suite has the problem in f64 only"
    assert judge(other, judging, workers).status is Status.UNAVAILABLE


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("raise ValueError('sizes')", "its own Model raised ValueError: sizes"),
        ("return x.relu_()", "its own Model writes to its inputs"),
        (
            "return torch.ones(1 << 33) + x.sum()",
            "its own Model ran out of memory: .*give more with --memory",
        ),
    ],
)
def test_a_problem_that_cannot_be_run_is_not_blamed_on_the_candidate(
    workers: Workers, tmp_path: Path, model: str, words: str
) -> None:
    (tmp_path / "suite.yaml").write_text("- kernel: level1/1_a.py\n  input_shapes: [4x4]\n")
    for folder, name in (("tree", "Model"), ("given", "ModelNew")):
        (tmp_path / folder / "level1").mkdir(parents=True)
        (tmp_path / folder / "level1" / "1_a.py").write_text(
            HEAD.replace("ModelNew", name) + (model if name == "Model" else "return x")
        )
    (candidate,) = find_candidates(tmp_path / "given", load_suite(tmp_path / "suite.yaml").entries)
    found = judge(
        candidate, Judging(tmp_path / "tree", tmp_path / "out", settings=QUICK, limits=LIMITS), workers
    )
    assert found.status is Status.UNAVAILABLE, found
    assert re.search(words, found.message), found


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


JOB = Job(
    folder=Path(),
    name="level1/1_a/b.py",
    candidate=Path("b.py"),
    problem="level1/1_a.py",
    model=Path("1_a.py"),
    inputs="4xf32xrnd",
    init_args="[]",
    settings=Settings(baselines=tuple(Baseline)),
    extensions=Path(),
)


def timing(ns: float) -> Timing:
    """A time that its samples do not have: what counts is computed again."""
    passes = tuple(
        PassRecord(block=block, position=position, latency_ns=(ns, ns * 1.01), device_busy_ns=(ns, ns * 1.01))
        for block in range(4)
        for position in (0, 1)
    )
    wrong = summarise([1.0, 2.0])
    return Timing(
        timer="host", cache=Cache.WARM, device_busy=wrong, latency=wrong, passes=passes, warmup_count=1,
        calibration_ns=ns,
    )  # fmt: skip


def rows(candidate: Check = Check.VERIFIED) -> tuple[Row, ...]:
    made = []
    for name, role, ns in ((CANDIDATE, Role.OURS, 100.0), ("eager", Role.BASELINE, 200.0)):
        check = candidate if role is Role.OURS else Check.VERIFIED
        made.append(
            Row(
                case="c",
                implementation=name,
                role=role,
                check=check,
                note="off" if check is Check.FAILED else "",
                timing=timing(ns) if check.timeable else None,
            )
        )
    return tuple(made)


def verdict(fate: Fate | None = None, message: str = "", wall_s: float = 1.0) -> Verdict:
    known = Verdict(JOB) if fate is None else Verdict(JOB, fate)
    return replace(known, message=message, wall_s=wall_s, notes={CANDIDATE: ["a note"]}, evidence="evidence")


def test_statistics_and_ratios_are_computed_again_from_the_samples() -> None:
    found, known = verdict().rows(rows(), SecondCheck())
    assert known.status is Status.VERIFIED
    assert found[0].timing is not None
    assert found[0].timing.device_busy.median_ns == pytest.approx(100.5)
    assert found[1].ratio is not None
    assert found[1].ratio.value == pytest.approx(2.0)
    assert Note.free("a note") in found[0].notes


@pytest.mark.parametrize(
    ("second", "status", "words"),
    [
        ({"wrong": "draw 2 of 5: off"}, Status.WRONG, "wrong where it was checked outside: draw 2 of 5: off"),
        ({"vacuous": "zeros would pass"}, Status.UNVERIFIED, "zeros would pass"),
        ({"undone": "too large"}, Status.UNVERIFIED, "too large"),
        ({"broken": "it died"}, Status.UNVERIFIED, "could not be checked outside its process: it died"),
    ],
)
def test_what_was_found_outside_decides(second: dict[str, Any], status: Status, words: str) -> None:
    found, known = verdict().rows(rows(), SecondCheck(**second))
    assert known.status is status
    assert words in known.message
    assert all(row.ratio is None for row in found)


def test_samples_that_add_up_to_more_time_than_there_was_leave_no_time() -> None:
    found, known = verdict(wall_s=1e-7).rows(rows(), SecondCheck())
    assert known.status is Status.UNVERIFIED
    assert "a clock in the worker was tampered with" in known.message
    assert all(row.timing is None for row in found)


@pytest.mark.parametrize("recorded", [(), rows(), rows(Check.FAILED)])
def test_one_that_failed_has_a_failed_row_and_untimed_baselines_whatever_was_recorded(
    recorded: tuple[Row, ...],
) -> None:
    found, known = verdict(Fate(Stage.IMPORT, Cause.DIED), "it died").rows(recorded, None)
    assert known.status is Status.CRASH
    assert [row.implementation for row in found] == [CANDIDATE, "eager", "inductor"]
    assert found[0].check is Check.FAILED
    assert all(row.timing is None and row.ratio is None for row in found)
    if not recorded:
        assert (found[0].params["stage"], found[0].params["cause"]) == ("import", "died")


def test_one_that_says_it_went_well_and_left_nothing_has_crashed() -> None:
    found, known = verdict().rows((), SecondCheck())
    assert (known.status, known.message) == (Status.CRASH, "it left no record")
    assert found[0].check is Check.FAILED
    assert found[0].traceback == "evidence"


# --- errors ----------------------------------------------------------------------------------------------


class CompilationError(Exception):
    """As Triton calls it."""


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def told(error: BaseException) -> BaseException:
    """Raise it in a worker, and have it arrive."""
    if isinstance(error, Exception):
        own = raising_its_own(error, "c")
        if own is not error:
            own.__cause__ = error
        error = own
    return decode(json.loads(json.dumps(encode(error)))).error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (VerificationError("off"), Status.WRONG),
        (InputsModifiedError("wrote"), Status.WRONG),
        (ImplementationError("raised"), Status.RUN_FAILURE),
        (caused(ImplementationError("raised"), CompilationError()), Status.COMPILE_FAILURE),
        (DeviceMemoryError("full"), Status.OUT_OF_MEMORY),
        (TimingError("clock"), Status.UNVERIFIED),
        (UnavailableError("no device"), Status.UNAVAILABLE),
        (UsageError("its own Model writes to its inputs"), Status.UNAVAILABLE),
        (ModelFileError("it raised"), Status.IMPORT_FAILURE),
        (caused(ModelFileError("it raised"), ModuleNotFoundError("triton")), Status.UNAVAILABLE),
        (ModelFileError("x.py:3: importing it raised OSError: CUDA_HOME is not set"), Status.UNAVAILABLE),
        (
            ModelFileError("importing it raised RuntimeError: Error building extension 'x'"),
            Status.COMPILE_FAILURE,
        ),
        (caused(ModelFileError("made"), MemoryError()), Status.OUT_OF_MEMORY),
        (torch.OutOfMemoryError("full"), Status.OUT_OF_MEMORY),
        (ValueError("while it was timed"), Status.RUN_FAILURE),
        (SystemExit(0), Status.CRASH),
    ],
)
def test_an_error_has_the_status_of_its_cause(error: BaseException, status: Status) -> None:
    assert Status.of(fate_of(told(error))) is status


def test_a_baseline_that_failed_leaves_the_candidate_unverified() -> None:
    assert Status.of(fate_of(VerificationError("off"), {CANDIDATE, "eager"})) is Status.WRONG
    assert Status.of(fate_of(VerificationError("off"), {"eager"})) is Status.UNVERIFIED


def test_no_error_of_this_package_is_taken_for_a_verified_candidate() -> None:
    kinds = [CrashedError, *KernelmarkError.__subclasses__()]
    for kind in kinds:
        try:
            error = kind("x")
        except TypeError:  # one that takes more; none of a worker's
            continue
        assert Status.of(fate_of(told(error))) is not Status.VERIFIED
