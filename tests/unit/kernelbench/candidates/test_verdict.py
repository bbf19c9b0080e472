"""The rows of a candidate that count: numbers computed again, and none where anything is wrong."""

from __future__ import annotations

import json
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
from kernelmark.isolation import decode, encode
from kernelmark.kernelbench.candidates.contestants import raising_its_own
from kernelmark.kernelbench.candidates.job import CANDIDATE, Baseline, Job, Settings
from kernelmark.kernelbench.candidates.verdict import Verdict, fate_of
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelfile.handover import SecondCheck
from kernelmark.records import Cache, Cause, Check, Fate, Note, PassRecord, Role, Row, Stage, Timing
from kernelmark.stats import summarise

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
