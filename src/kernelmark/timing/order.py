"""In which order the timers can be used in one process."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmark.timing.timers import TimerEntry

__all__ = ["in_bearable_order"]

_FIRST = ("proton", "cudagraph_proton")
"""Proton cannot start in a process in which another profiler was used; the others follow it without harm."""


def in_bearable_order(entries: Sequence[TimerEntry]) -> list[TimerEntry]:
    """Put the timers that must come first in a process before the others."""
    return sorted(entries, key=lambda entry: entry.name not in _FIRST)
