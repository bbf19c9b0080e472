"""The device that tests run on behaves like a device."""

from __future__ import annotations

import pytest

from kernelmark.device import Device, FakeDevice
from kernelmark.device.fake import FakeClock


def test_it_is_a_device() -> None:
    assert isinstance(FakeDevice(), Device)
    assert FakeDevice(kind="cuda").describe().kind == "cuda"


def test_its_clock_moves_only_when_told() -> None:
    clock = FakeClock(tick_ns=3)
    assert (clock(), clock()) == (0, 3)
    clock.advance(10)
    assert clock() == 16


def test_queued_work_takes_its_time_when_waited_for() -> None:
    device = FakeDevice(kind="cuda")
    device.queue(500)
    assert device.clock() == 0
    device.synchronize()
    device.synchronize()
    assert device.clock() == 500


def test_everything_goes_into_the_log_in_order() -> None:
    device = FakeDevice(flush_ns=7)
    device.flusher()()
    device.synchronize()
    device.telemetry()
    device.release_memory()
    assert device.log == ["flush", "synchronize", "telemetry", "release_memory"]
    assert device.clock() == 7


def test_a_failure_shows_at_the_next_synchronisation_and_once() -> None:
    device = FakeDevice(failure=RuntimeError("launch failed"))
    with pytest.raises(RuntimeError, match="launch failed"):
        device.synchronize()
    device.synchronize()
