"""Many cases at a glance."""

from __future__ import annotations

import pytest

from kernelmark.records import Cache, Check, PassRecord, Ratio, Role, Row, Timing
from kernelmark.stats import overview, summarise

TIME = summarise([10])
TIMING = Timing(
    timer="host",
    cache=Cache.COLD,
    device_busy=TIME,
    latency=TIME,
    passes=(PassRecord(block=0, position=0, latency_ns=(10,), device_busy_ns=(10,)),),
)


def ratio(value: float, verdict: str) -> Ratio:
    return Ratio(value=value, low=value * 0.9, high=value * 1.1, blocks=10, verdict=verdict)


def rows(
    case: str, found: Ratio | None, *, ours: Check = Check.VERIFIED, theirs: Check = Check.VERIFIED
) -> list[Row]:
    timing = TIMING if found else None
    return [
        Row(case=case, implementation="mine", role=Role.OURS, check=ours, note="why", timing=timing),
        Row(
            case=case,
            implementation="torch",
            role=Role.BASELINE,
            check=theirs,
            note="why",
            timing=timing,
            ratio=found,
        ),
    ]


def test_each_case_is_counted_once_and_the_mean_is_of_the_ratios():
    (found,) = overview(
        [
            *rows("a", ratio(2.0, "faster")),
            *rows("b", ratio(0.5, "slower")),
            *rows("c", ratio(1.0, "undecided")),
            *rows("d", None, ours=Check.FAILED),
            *rows("e", None, theirs=Check.UNAVAILABLE),
        ]
    )
    counts = (found.cases, found.faster, found.slower, found.undecided, found.failed, found.without)
    assert counts == (5, 1, 1, 1, 1, 1)
    assert [case for case, _ in found.ratios] == ["b", "c", "a"]
    assert found.mean is not None
    assert (found.mean.count, found.mean.value) == (3, pytest.approx(1))


def test_without_a_ratio_there_is_no_mean_and_without_rows_nothing():
    (found,) = overview(rows("a", None))
    assert (found.cases, found.without, found.mean) == (1, 1, None)
    assert overview([]) == ()
