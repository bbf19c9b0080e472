"""Which instruments an audit reads with: every timer of kernelmark, and those of others.

A table and what serves a kind of device. How one is run is in ``work``, ``ncu`` and ``nvbench``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kernelmark.records import Cache
from kernelmark.timing import TIMERS
from kernelmark.timing.timer import SYNCHRONOUS_KINDS

__all__ = ["Instrument", "Place", "default_reference", "instruments_for"]


class Place(StrEnum):
    """In which process an instrument reads."""

    SHARED = "shared"
    """One process for all that read clocks only."""
    ALONE = "alone"
    """A process in which no other profiler has been: they fight over CUPTI."""
    NCU = "ncu"
    """A process that ncu starts."""
    NVBENCH = "nvbench"
    """A process in which NVBench counts and stops."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """One instrument: its name, what a reading of it is, and under which conditions it is taken."""

    name: str
    reads: str
    cache: Cache
    place: Place
    timer: str | None = None
    """The timer of kernelmark that it is, if it is one."""


_CLOCKS = frozenset({"host", "device_events"})
"""Timers that use no profiler."""

_OTHERS = (
    Instrument(
        "do_bench",
        "triton.testing.do_bench: a pair of events around each call, after a flush by writing",
        Cache.COLD,
        Place.SHARED,
    ),
    Instrument(
        "nvbench",
        "NVBench (cuda-bench): a pair of events around each call that waits behind a blocking kernel, after a"
        " flush by writing",
        Cache.COLD,
        Place.NVBENCH,
    ),
    Instrument(
        "ncu",
        "Nsight Compute: gpu__time_duration.sum of the call's kernels, clocks as they are, all caches flushed",
        Cache.COLD,
        Place.NCU,
    ),
)
_ON_CPU = (
    Instrument(
        "host-warm",
        "kernelmark's host timer with warm caches, as torch's Timer has them",
        Cache.WARM,
        Place.SHARED,
        timer="host",
    ),
    Instrument(
        "torch-timer",
        "torch.utils.benchmark.Timer: the host's clock around a block of calls, divided by their number",
        Cache.WARM,
        Place.SHARED,
    ),
)


def instruments_for(kind: str) -> tuple[Instrument, ...]:
    """List the instruments for a device of ``kind``, kernelmark's own first."""
    ours = tuple(
        Instrument(
            entry.name,
            entry.reads,
            Cache.COLD,
            Place.SHARED if entry.name in _CLOCKS else Place.ALONE,
            timer=entry.name,
        )
        for entry in TIMERS
        if entry.serves_kind(kind)
    )
    if kind in SYNCHRONOUS_KINDS:
        return ours + _ON_CPU
    return ours + (_OTHERS if kind == "cuda" else ())


def default_reference(kind: str, default_timer: str) -> tuple[str, ...]:
    """Name what the others are measured against, the first choice first."""
    if kind in SYNCHRONOUS_KINDS:
        return ("torch-timer", "host-warm", default_timer)
    return ("ncu", default_timer, "device_events") if kind == "cuda" else (default_timer, "host")
