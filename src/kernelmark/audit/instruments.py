"""What an audit reads and with what: five calls, every timer of kernelmark, and the instruments of others.

The calls are tiny, small, bound by memory, bound by arithmetic, and both. What is in one is the same for every
instrument and in every process: the same operation, sizes and values, into outputs that are there already, so that
no instrument has an allocation to read. How an instrument is run is in ``work``, ``ncu`` and ``nvbench``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kernelmark.records import Cache
from kernelmark.timing import TIMERS, Call
from kernelmark.timing.timer import SYNCHRONOUS_KINDS
from kernelmark.units import format_bytes

__all__ = [
    "AuditCall",
    "Instrument",
    "Place",
    "build_calls",
    "calls_for",
    "default_reference",
    "instruments_for",
]


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


# --- the calls -------------------------------------------------------------------------------------------

_SEED = 20261
"""The power that a product draws, and with it the clock, depends on its values."""


@dataclass(frozen=True, slots=True)
class AuditCall:
    """One call: its name, and whether it is long enough for an instrument's own share to vanish in it."""

    name: str
    long: bool


_TINY, _SMALL = 256, 1 << 20


def _sizes(kind: str) -> tuple[int, int, str]:
    """Give elements of the large sum, rows of the square matrices, and their type."""
    if kind in SYNCHRONOUS_KINDS:
        return 1 << 23, 512, "float32"  # a few milliseconds at most on one thread
    return 1 << 26, 4096, "bfloat16"


def calls_for(kind: str) -> tuple[AuditCall, ...]:
    """Name the calls for a device of ``kind``, in the order in which they are read."""
    large, rows, dtype = _sizes(kind)
    return (
        AuditCall(f"add of {_TINY} floats", long=False),
        AuditCall(f"add of {format_bytes(4 * _SMALL)}", long=False),
        AuditCall(f"add of {format_bytes(4 * large)}", long=True),
        AuditCall(f"matmul {rows}³ {dtype}", long=True),
        AuditCall(f"softmax {rows}² {dtype}", long=True),
    )


def build_calls(kind: str, torch_name: str) -> Mapping[str, Call]:
    """Make the calls on a device, each by its name."""
    import torch

    large, rows, dtype = _sizes(kind)
    generator = torch.Generator(device=torch_name).manual_seed(_SEED)

    def drawn(*shape: int, dtype: str = "float32") -> torch.Tensor:
        return torch.randn(shape, dtype=getattr(torch, dtype), device=torch_name, generator=generator)

    def add(count: int) -> Call:
        given = drawn(count)
        out = torch.empty_like(given)
        return Call(lambda: torch.add(given, given, out=out))

    square = drawn(rows, rows, dtype=dtype)
    product, shares = torch.empty_like(square), torch.empty_like(square)
    made = (
        *map(add, (_TINY, _SMALL, large)),
        Call(lambda: torch.mm(square, square, out=product)),
        Call(lambda: torch.softmax(square, -1, out=shares)),
    )
    return dict(zip((call.name for call in calls_for(kind)), made, strict=True))
