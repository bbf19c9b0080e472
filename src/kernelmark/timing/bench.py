"""Times one callable, with no case and no check around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelmark.device import Device
from kernelmark.errors import InstrumentConflictError
from kernelmark.records import Timing
from kernelmark.timing.isolated import time_isolated
from kernelmark.timing.loop import time_together
from kernelmark.timing.protocol import TimingOptions
from kernelmark.timing.timer import Call, Timer
from kernelmark.timing.timers import open_timer

__all__ = ["bench_kernel"]


def bench_kernel(
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    *,
    reset: Callable[[], object] | None = None,
    device: Device | str | None = None,
    timer: Timer | str | None = None,
    options: TimingOptions | None = None,
) -> Timing:
    """Time ``fn(*args)``. Nothing is checked: whether the answer is right is the caller's business.

    Args:
        fn: What to time.
        args: Its arguments.
        reset: Runs before each round's flush, outside the reading.
        device: A device or its name; the best one there is without it.
        timer: A timer or its name; the device's default without it. Given by name, one that cannot follow a
            profiler used before in this process times in a process of its own, if ``fn`` can be sent there.
        options: Budget, cache state and copy policy.

    Raises:
        UsageError: an argument that no run could satisfy.
        UnavailableError: this machine lacks the device or the timer.
        TimingError: the instrument cannot vouch for its readings.
        Exception: whatever ``fn`` or ``reset`` raises, unchanged.
    """
    where = _open(device) if device is None or isinstance(device, str) else device
    instrument = open_timer(timer, where) if timer is None or isinstance(timer, str) else timer
    calls = {"": Call(fn, args, reset)}
    try:
        return time_together(calls, where, timer=instrument, options=options)[""]
    except InstrumentConflictError as conflict:
        if isinstance(timer, Timer):
            raise
        return time_isolated(
            calls, where.torch_name, timer=instrument.name, options=options, conflict=conflict
        )[""]


def _open(name: str | None) -> Device:
    from kernelmark.device import open_device  # loads torch, which timing on a given device may not need

    return open_device(name)
