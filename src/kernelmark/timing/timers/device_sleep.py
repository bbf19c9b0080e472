"""A sleep on the device for a known time: one thread that counts the clock and touches no memory.

torch has no public call for it; its own tests use this one. It counts cycles, so how many of them make a
nanosecond is read when the sleep is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kernelmark.device import Device
from kernelmark.timing.references import Reference, capture
from kernelmark.units import NS_PER_MS

__all__ = ["SLEEP_REFERENCES", "Sleep", "open_cuda_sleep"]

Sleep = Callable[[float], Callable[[], object]]
"""Takes nanoseconds, and gives what queues a sleep of that length."""

SLEEP_REFERENCES: tuple[Reference, ...] = (
    capture(torch.cuda, "_sleep") if hasattr(torch.cuda, "_sleep") else ()
)

_CYCLES = 1_000_000
"""0.5 ms at 1.98 GHz, the clock of an H200 at work; 3 ms at the 345 MHz of an idle one."""
_READINGS = 8
_STEADY = 1.05


def open_cuda_sleep(
    device: Device, make_event: Callable[[], Any], current_stream: Callable[[], Any]
) -> Sleep | None:
    """Give the sleep of one CUDA device; ``None`` where none of known length can be had.

    Spins until two in a row take the same time, since an idle device's clock is low at first. The fastest clock
    counts: at a lower one a sleep is longer than it was asked for, and never shorter.
    """
    if not SLEEP_REFERENCES:
        return None
    spin: Callable[[int], object] = SLEEP_REFERENCES[0].value  # type: ignore[assignment]
    there = torch.cuda.device(
        device.torch_name
    )  # the spin goes to the current device, which may be another one
    start, end, times = make_event(), make_event(), []
    for _ in range(_READINGS):
        stream = current_stream()
        start.record(stream)
        with there:
            spin(_CYCLES)
        end.record(stream)
        device.synchronize()
        times.append(start.elapsed_time(end) * NS_PER_MS)
        if len(times) > 1 and max(times[-2:]) < _STEADY * min(times[-2:]):
            break
    fastest_ns = min(times)
    if not fastest_ns > 0:
        return None
    return partial(_sleep_of, spin, there, _CYCLES / fastest_ns)


def _sleep_of(
    spin: Callable[[int], object], there: torch.cuda.device, cycles_per_ns: float, ns: float
) -> Callable[[], object]:
    cycles = max(1, round(ns * cycles_per_ns))

    def sleep() -> None:
        with there:
            spin(cycles)

    return sleep
