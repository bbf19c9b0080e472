"""Calls whose length is known without the instrument that reads them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kernelmark.device import Device
from kernelmark.timing.timer import SYNCHRONOUS_KINDS
from kernelmark.units import NS_PER_S, NS_PER_US

__all__ = ["Spin", "spin"]

_CYCLES_PER_NS = 2  # of a GPU's clock, roughly; what it is at the time is read
_WATCHED = 20  # so much longer is the spin during which the clock is read


@dataclass(frozen=True, slots=True)
class Spin:
    """A call, how long it takes, and what says so."""

    run: Callable[[], object]
    length_ns: float
    by: str


def spin(device: Device, wanted_ns: int) -> Spin | None:
    """Give a spin of about ``wanted_ns`` on ``device``; ``None`` where none of known length can be had."""
    if device.kind in SYNCHRONOUS_KINDS:
        raw = getattr(
            time, "CLOCK_MONOTONIC_RAW", None
        )  # nobody slews it, and the host timer does not read it
        clock = time.monotonic_ns if raw is None else partial(time.clock_gettime_ns, raw)
        by = "the monotonic clock" if raw is None else "CLOCK_MONOTONIC_RAW"
        return Spin(partial(_wait, clock, wanted_ns), wanted_ns, by)
    return _on_cuda(device, wanted_ns) if device.kind == "cuda" else None


def _wait(clock: Callable[[], int], length_ns: int) -> None:
    end = clock() + length_ns
    while clock() < end:
        pass


def _on_cuda(device: Device, wanted_ns: int) -> Spin | None:
    """Spin for a number of cycles: their length follows from the clock, which NVML reads meanwhile.

    torch has no public call for it; its own tests use this one. 2e7 cycles took 10.1 ms on an H200 at
    1980 MHz.
    """
    import torch

    sleep: Callable[[int], object] | None = getattr(torch.cuda, "_sleep", None)
    if sleep is None:
        return None
    cycles = _CYCLES_PER_NS * wanted_ns
    sleep(cycles)  # wakes the device
    sleep(_WATCHED * cycles)
    time.sleep(_WATCHED * wanted_ns / NS_PER_S / 2)  # until its clock has risen
    clock_mhz = device.telemetry().clock_mhz
    device.synchronize()
    if not clock_mhz:
        return None
    return Spin(
        partial(sleep, cycles), cycles / clock_mhz * NS_PER_US, f"{cycles} cycles at {clock_mhz:.0f} MHz"
    )
