"""The memory of which profilers a process has used, and what it refuses because of that."""

from __future__ import annotations

import pytest

from kernelmark.errors import InstrumentConflictError
from kernelmark.timing import profilers
from kernelmark.timing.profilers import (
    _FIRST,
    Profiler,
    in_bearable_order,
    note_use,
    refuse_after_others,
    used,
)
from kernelmark.timing.timers import TIMERS, TimerEntry


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profilers, "_used", [])


@pytest.mark.spec("X7")
@pytest.mark.parametrize(
    "before", [(Profiler.CUPTI,), (Profiler.KINETO, Profiler.CUPTI), (Profiler.PROTON, Profiler.KINETO)]
)
def test_proton_after_another_is_refused_and_the_first_one_is_named(before: tuple[Profiler, ...]) -> None:
    for each in before:
        note_use(each)
    others = [each for each in before if each is not Profiler.PROTON]
    with pytest.raises(InstrumentConflictError, match=f"but {' and then '.join(others)} came first"):
        refuse_after_others(Profiler.PROTON)


def test_the_others_follow_anything_and_proton_follows_itself() -> None:
    note_use(Profiler.PROTON)
    refuse_after_others(Profiler.PROTON)
    note_use(Profiler.KINETO)
    for each in (Profiler.CUPTI, Profiler.KINETO):
        refuse_after_others(each)


def test_the_order_of_first_use_is_kept() -> None:
    for each in (Profiler.KINETO, Profiler.CUPTI, Profiler.KINETO):
        note_use(each)
    assert used() == (Profiler.KINETO, Profiler.CUPTI)


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
