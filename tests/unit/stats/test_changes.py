"""Two runs beside each other: what changed, and what decides nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.records import Cache, Check, PassRecord, Ratio, Role, Row, Timing
from kernelmark.stats import summarise
from kernelmark.stats.changes import STILL, Changes, changes, direction, worse

RATIOS = st.builds(
    lambda value, width: Ratio(value=value, low=value / width, high=value * width, blocks=10),
    st.floats(0.01, 100),
    st.floats(1, 3),
)


def timing(ns: float) -> Timing:
    time = summarise([ns])
    passes = (PassRecord(block=0, position=0, latency_ns=(ns,), device_busy_ns=(ns,)),)
    return Timing(timer="host", cache=Cache.COLD, device_busy=time, latency=time, passes=passes)


def ratio(low: float, high: float) -> Ratio:
    return Ratio(value=(low * high) ** 0.5, low=low, high=high, blocks=10)


def rows(
    *, found: Ratio | None = None, torch_ns: float = 100, ours: Check = Check.VERIFIED, case: str = "a"
) -> list[Row]:
    time = timing(torch_ns) if found else None
    return [
        Row(case=case, implementation="mine", role=Role.OURS, check=ours, note="why"),
        Row(
            case=case,
            implementation="torch",
            role=Role.BASELINE,
            check=Check.VERIFIED,
            timing=time,
            ratio=found,
        ),
    ]


def compared(*runs: list[Row]) -> Changes:
    before, after = ({(row.op, row.case, row.implementation): row for row in rows} for rows in runs)
    return changes(before, after)


@pytest.mark.parametrize(
    ("after", "torch_ns", "verdict", "is_worse"),
    [
        (ratio(0.7, 0.8), 100, "slower", True),
        (ratio(1.2, 1.3), 100, "faster", False),
        (ratio(0.8, 0.95), 100, "", False),
        (ratio(0.7, 0.8), 100 * (1 + STILL) - 1, "slower", True),
        (ratio(0.7, 0.8), 100 * (1 + STILL) + 1, "moved", False),
        (ratio(1.2, 1.3), 100 * (1 - STILL) - 1, "moved", False),
    ],
)
def test_a_ratio_moved_where_the_intervals_do_not_overlap_and_the_baseline_stood_still(
    after: Ratio, torch_ns: float, verdict: str, is_worse: bool
):
    found = compared(rows(found=ratio(0.9, 1.1)), rows(found=after, torch_ns=torch_ns))
    assert ([each.verdict for each in found.ratios], found.checks, found.worse) == ([verdict], (), is_worse)


@pytest.mark.parametrize(
    ("before", "after", "is_worse"),
    [
        (Check.VERIFIED, Check.FAILED, True),
        (Check.VERIFIED, Check.UNVERIFIED, True),
        (Check.UNVERIFIED, Check.VERIFIED, False),
        (Check.UNAVAILABLE, Check.FAILED, False),
    ],
)
def test_a_check_that_changed_is_better_or_worse(before: Check, after: Check, is_worse: bool):
    found = compared(rows(ours=before), rows(ours=after))
    ((case, name, was, now),) = [
        (each.case, each.implementation, each.before, each.after) for each in found.checks
    ]
    assert (case, name, was, now, found.worse) == ("a", "mine", before, after, is_worse)


def test_a_case_that_is_gone_is_worse_and_a_new_one_is_not():
    gone = compared([*rows(), *rows(case="b")], rows())
    assert [(each.case, each.after, each.worse) for each in gone.checks] == [("b", None, True)] * 2
    new = compared(rows(), [*rows(case="b"), *rows()])
    assert [(each.case, each.before, each.worse) for each in new.checks] == [("b", None, False)] * 2
    assert gone.worse
    assert not new.worse


def test_what_is_further_from_the_best_or_gone_is_worse():
    assert worse(Check.VERIFIED, Check.FAILED)
    assert worse(Check.FAILED, None)
    assert not worse(Check.FAILED, Check.VERIFIED)
    assert not worse(Check.FAILED, Check.FAILED)
    assert not worse(None, Check.FAILED)


@given(before=RATIOS, after=RATIOS)
def test_the_direction_turns_round_with_the_runs_and_none_changes_beside_itself(before: Ratio, after: Ratio):
    turned = {"faster": "slower", "slower": "faster", "": ""}
    assert direction(after, before) == turned[direction(before, after)]
    assert direction(before, before) == ""
    assert direction(before, None) == direction(None, before) == ""
