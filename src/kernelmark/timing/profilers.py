"""Which profilers this process has used, in which order, and which of them one that is asked for cannot follow.

A GPU serves one profiler of a process at a time, and some leave it in a state in which another cannot start.
This is the memory of one process: what another library profiled with here is not in it, and is found out by
the instrument itself when it reads a call whose work is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

from kernelmark.errors import InstrumentConflictError

__all__ = ["Profiler", "in_bearable_order", "note_use", "refuse_after_others", "used"]


class Profiler(StrEnum):
    """What a timer reads through."""

    CUPTI = "cupti-python"
    KINETO = "torch.profiler"
    PROTON = "Proton"


_SPOILED_BY: dict[Profiler, tuple[Profiler, ...]] = {
    # Measured on an H200 (torch 2.11, Triton 3.6): cuptiSubscribe gives error 39, and Proton stays broken in
    # that process. The other two work after any of them, Proton included.
    Profiler.PROTON: (Profiler.CUPTI, Profiler.KINETO),
}

_used: list[Profiler] = []


def note_use(profiler: Profiler) -> None:
    """Remember that ``profiler`` is about to be used in this process."""
    if profiler not in _used:
        _used.append(profiler)


def used() -> tuple[Profiler, ...]:
    """Give the profilers used so far, the first one first."""
    return tuple(_used)


def refuse_after_others(profiler: Profiler) -> None:
    """Check that nothing used so far keeps ``profiler`` from starting.

    Raises:
        InstrumentConflictError: something does; the message names the one that came first.
    """
    before = [each for each in _used if each in _SPOILED_BY.get(profiler, ())]
    if before:
        raise InstrumentConflictError(
            f"{profiler} was asked for, but {' and then '.join(before)} came first in this process, and {profiler}"
            f" cannot start after that (CUPTI refuses a second subscriber). Time with {profiler} before the others,"
            " use a process of its own, or ask for a timer that works here: cupti, kineto or device_events"
        )


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)

_FIRST = ("proton", "cudagraph_proton")
"""The timers through Proton, which cannot start after another profiler; the others follow it without harm."""


def in_bearable_order(timers: Sequence[N]) -> list[N]:
    """Put the timers that must come first in a process before the others."""
    return sorted(timers, key=lambda each: each.name not in _FIRST)
