"""The rows of a candidate that count: numbers computed again, and none where anything is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmark.kernelbench.candidates.job import CANDIDATE, Baseline, Job, Settings
from kernelmark.kernelbench.candidates.verdict import Verdict
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelfile.handover import Outcome, SecondCheck
from kernelmark.records import Cache, Check, PassRecord, Role, Row, Timing
from kernelmark.stats import summarise

JOB = Job(
    folder=Path(),
    name="level1/1_a/b.py",
    candidate=Path("b.py"),
    problem="level1/1_a.py",
    model=Path("1_a.py"),
    inputs="4xf32xrnd",
    init_args=(),
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


def verdict(status: Status = Status.VERIFIED, message: str = "", wall_s: float = 1.0) -> Verdict:
    return Verdict(JOB, status, message, Outcome(notes={CANDIDATE: ["a note"]}, traceback="evidence"), wall_s)


def test_statistics_and_ratios_are_computed_again_from_the_samples() -> None:
    found, known = verdict().rows(rows(), SecondCheck())
    assert known.status is Status.VERIFIED
    assert found[0].timing is not None
    assert found[0].timing.device_busy.median_ns == pytest.approx(100.5)
    assert found[1].ratio is not None
    assert found[1].ratio.value == pytest.approx(2.0)
    assert "a note" in found[0].notes


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
    found, known = verdict(Status.CRASH, "it died").rows(recorded, None)
    assert known.status is Status.CRASH
    assert [row.implementation for row in found] == [CANDIDATE, "eager", "inductor"]
    assert found[0].check is Check.FAILED
    assert all(row.timing is None and row.ratio is None for row in found)


def test_one_that_says_it_went_well_and_left_nothing_has_crashed() -> None:
    found, known = verdict().rows((), SecondCheck())
    assert (known.status, known.message) == (Status.CRASH, "it left no record")
    assert found[0].check is Check.FAILED
    assert found[0].traceback == "evidence"
