"""Tries each timer on a device: it is opened, which reads a call whose work is known, and closed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelmark.device import Device
from kernelmark.errors import TimingError, UnavailableError
from kernelmark.timing.profilers import in_bearable_order
from kernelmark.timing.timer import Timer
from kernelmark.timing.timers import TIMERS, TimerEntry, open_timer

__all__ = ["TimerTrial", "try_timers"]


@dataclass(frozen=True, slots=True)
class TimerTrial:
    """One timer that serves the device: whether it works here, and if not, its own words for why."""

    name: str
    is_default: bool
    reads: str
    failure: str = ""
    unavailable: bool = False
    """The failure is that something is not installed or not there, rather than a reading in doubt."""


def try_timers(
    device: Device,
    *,
    entries: Sequence[TimerEntry] = TIMERS,
    open_: Callable[[str, Device], Timer] = open_timer,
) -> tuple[TimerTrial, ...]:
    """Try every timer that serves ``device``."""
    serving = [entry for entry in in_bearable_order(entries) if entry.serves_kind(device.kind)]
    return tuple(_try(entry, device, open_) for entry in serving)


def _try(entry: TimerEntry, device: Device, open_: Callable[[str, Device], Timer]) -> TimerTrial:
    failure, unavailable = "", False
    try:
        timer = open_(entry.name, device)
        try:
            timer.open(device)
        finally:
            timer.close()
    except UnavailableError as error:
        failure, unavailable = str(error), True
    except TimingError as error:
        failure = str(error)
    return TimerTrial(entry.name, entry.name == device.default_timer, entry.reads, failure, unavailable)
