"""The reset of persisting lines says why it cannot be had, and refuses to go on when it stops working."""

from __future__ import annotations

import pytest
import torch

from kernelmark.device import persisting_l2 as subject
from kernelmark.device.persisting_l2 import PersistingL2
from kernelmark.errors import TimingError


class Driver:
    """The driver's call, which gives one error code after another."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        return self.errors.pop(0)


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch's context and stream calls do nothing, so that only the driver's answers count."""
    from contextlib import nullcontext

    monkeypatch.setattr(torch.cuda, "device", lambda index: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch, "zeros", lambda *args, **kwargs: None)


def opened(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> PersistingL2:
    monkeypatch.setattr(subject, "_find_reset", lambda: driver)
    return PersistingL2(0)


def test_without_the_drivers_library_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_LIBRARY", "libthere_is_no_such_library.so")
    reset = PersistingL2(0)
    assert "has no cuCtxResetPersistingL2Cache" in reset.reason
    reset()


@pytest.mark.usefixtures("no_device")
def test_a_reset_that_works_is_made_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(0, 0, 0)
    reset = opened(monkeypatch, driver)
    reset()
    reset()
    assert reset.reason == ""
    assert driver.calls == 3


@pytest.mark.usefixtures("no_device")
def test_a_reset_that_never_worked_is_told_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(801)
    reset = opened(monkeypatch, driver)
    reset()
    assert "CUDA error 801" in reset.reason
    assert driver.calls == 1


@pytest.mark.usefixtures("no_device")
def test_a_reset_that_stops_working_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    reset = opened(monkeypatch, Driver(0, 700))
    with pytest.raises(TimingError, match=r"CUDA error 700.*cold cache cannot be promised"):
        reset()


@pytest.mark.usefixtures("no_device")
def test_nothing_is_reset_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    driver = Driver(0)
    opened(monkeypatch, driver)()
    assert driver.calls == 1  # the one that tried it out
