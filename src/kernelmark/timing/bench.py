"""Times one callable, with no case and no check around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelmark.device import Device
from kernelmark.errors import InstrumentConflictError, UsageError
from kernelmark.records import Note, Timing
from kernelmark.timing.elsewhere import in_another_process, note_of
from kernelmark.timing.loop import time_together
from kernelmark.timing.protocol import TimingOptions
from kernelmark.timing.timer import Call, Timer
from kernelmark.timing.timers import open_timer

__all__ = ["bench_kernel", "time_isolated"]


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
    if not isinstance(args, tuple):  # a tensor would be taken apart into its rows
        raise UsageError(f"args must be a tuple, got {type(args).__name__}; for one argument write args=(x,)")
    where = _open(device) if device is None or isinstance(device, str) else device
    instrument = open_timer(timer, where) if timer is None or isinstance(timer, str) else timer
    call = Call(fn, args, reset)
    try:
        return time_together({"": call}, where, timer=instrument, options=options)[""]
    except InstrumentConflictError as conflict:
        if isinstance(timer, Timer):
            raise
        return time_isolated(
            call, where.torch_name, timer=instrument.name, options=options, conflict=conflict
        )


@dataclass(frozen=True, slots=True)
class _Request:
    call: Call
    device: str
    timer: str
    options: TimingOptions | None


def time_isolated(
    call: Call,
    device: str,
    *,
    timer: str,
    options: TimingOptions | None = None,
    conflict: InstrumentConflictError,
) -> Timing:
    """Time ``call`` in a new process.

    Args:
        call: What to time; all of it must be sendable.
        device: The device's name in torch.
        timer: The timer's name.
        options: As for :func:`bench_kernel`.
        conflict: Why it cannot be done here; the result notes it.

    Raises:
        InstrumentConflictError: the call cannot be sent; the message tells the conflict, and why it cannot.
        TimingError: the process ended without an answer, or its instrument cannot vouch for its readings.
        Exception: whatever the call raises there.
    """
    timing = in_another_process(_time, _Request(call, device, timer, options), conflict)
    return timing.model_copy(update={"notes": (*timing.notes, Note.free(note_of(conflict)))})


def _time(request: _Request) -> Timing:
    device = _open(request.device)
    timer = open_timer(request.timer, device)
    return time_together({"": request.call}, device, timer=timer, options=request.options)[""]


def _open(name: str | None) -> Device:
    from kernelmark.device import open_device  # loads torch, which timing on a given device may not need

    return open_device(name)
