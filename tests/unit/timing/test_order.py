"""The timers' order in one process: what another profiler would spoil comes first."""

from __future__ import annotations

from kernelmark.timing.order import _FIRST, in_bearable_order
from kernelmark.timing.timers import TIMERS, TimerEntry


def test_proton_comes_first_and_the_others_keep_their_order() -> None:
    names = ("host", "cupti", "cudagraph_proton", "kineto", "proton")
    entries = [TimerEntry(name, "x:y", "any device", "") for name in names]
    assert [each.name for each in in_bearable_order(entries)] == [
        "cudagraph_proton",
        "proton",
        "host",
        "cupti",
        "kineto",
    ]


def test_no_timer_is_lost() -> None:
    assert set(in_bearable_order(TIMERS)) == set(TIMERS)


def test_every_timer_that_reads_through_proton_comes_first() -> None:
    assert {each.name for each in TIMERS if "proton" in each.target} <= set(_FIRST)
