"""Times calls in a process of their own, and checks nothing there either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelmark.errors import InstrumentConflictError
from kernelmark.records import Timing
from kernelmark.timing.elsewhere import in_another_process, note_of
from kernelmark.timing.protocol import TimingOptions
from kernelmark.timing.timer import Call

__all__ = ["time_isolated"]


@dataclass(frozen=True, slots=True)
class _Request:
    calls: Mapping[str, Call]
    device: str
    timer: str
    options: TimingOptions | None


def time_isolated(
    calls: Mapping[str, Call],
    device: str,
    *,
    timer: str,
    options: TimingOptions | None = None,
    conflict: InstrumentConflictError,
) -> dict[str, Timing]:
    """Do as ``time_together`` in a new process.

    Args:
        calls: What to time, by name; all of it must be sendable.
        device: The device's name in torch.
        timer: The timer's name.
        options: As for ``time_together``.
        conflict: Why it cannot be done here; each row notes it.

    Raises:
        InstrumentConflictError: the calls cannot be sent; the message tells the conflict, and why they cannot.
        TimingError: the process ended without an answer, or its instrument cannot vouch for its readings.
        Exception: whatever a call raises there.
    """
    timings = in_another_process(_time, _Request(calls, device, timer, options), conflict)
    note = note_of(conflict)
    return {name: each.model_copy(update={"notes": (*each.notes, note)}) for name, each in timings.items()}


def _time(request: _Request) -> dict[str, Timing]:
    from kernelmark.device import open_device
    from kernelmark.timing.loop import time_together
    from kernelmark.timing.timers import open_timer

    device = open_device(request.device)
    timer = open_timer(request.timer, device)
    return time_together(request.calls, device, timer=timer, options=request.options)
