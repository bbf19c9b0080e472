"""Each timer that serves a device is opened and closed; its own words for a failure are kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmark.device import Device, FakeDevice
from kernelmark.doctor.machine import TimerTrial, try_timers
from kernelmark.errors import InstrumentConflictError, UnavailableError
from kernelmark.timing.timer import Timer
from kernelmark.timing.timers import TIMERS, TimerEntry
from kernelmark.timing.timers.host import HostTimer


class Watched(HostTimer):
    """Logs, and fails to open where told to."""

    def __init__(self, failure: Exception | None, log: list[str]) -> None:
        super().__init__()
        self.failure, self.log = failure, log

    def open(self, device: Device) -> None:
        self.log.append("open")
        if self.failure:
            raise self.failure

    def close(self) -> None:
        self.log.append("close")


def tried(failure: Exception | None) -> tuple[TimerTrial, list[str]]:
    log: list[str] = []
    entry = TimerEntry("host", "x:y", "any device", "the clock")
    (trial,) = try_timers(FakeDevice(), entries=[entry], open_=lambda name, device: Watched(failure, log))
    return trial, log


@pytest.mark.parametrize(
    ("failure", "unavailable"),
    [
        (None, False),
        (UnavailableError("not installed"), True),
        (InstrumentConflictError("another profiler has it"), False),
    ],
)
def test_a_timer_is_closed_however_opening_it_went(failure: Exception | None, unavailable: bool) -> None:
    trial, log = tried(failure)
    assert log == ["open", "close"]
    assert trial == TimerTrial("host", True, "the clock", str(failure or ""), unavailable)


def test_a_failure_that_nobody_foresaw_is_no_finding() -> None:
    with pytest.raises(ZeroDivisionError):
        tried(ZeroDivisionError())


def test_proton_is_tried_before_what_would_spoil_it() -> None:
    order: list[str] = []

    def open_(name: str, device: Device) -> Timer:
        order.append(name)
        return Watched(None, [])

    entries = [TimerEntry(name, "x:y", "any device", "") for name in ("host", "cupti", "proton")]
    try_timers(FakeDevice(), entries=entries, open_=open_)
    assert order == ["proton", "host", "cupti"]


def test_only_timers_that_serve_the_device_are_tried() -> None:
    opened: Callable[[str, Device], Timer] = lambda name, device: Watched(None, [])  # noqa: E731
    assert [each.name for each in try_timers(FakeDevice(), entries=TIMERS, open_=opened)] == ["host"]
