"""The sleep of a CUDA device: how many cycles make a nanosecond, and on which device it is queued."""

from __future__ import annotations

import pytest
import torch

from kernelmark.device import FakeDevice
from kernelmark.timing.references import capture
from kernelmark.timing.timers import device_sleep
from kernelmark.timing.timers.device_sleep import open_cuda_sleep


class Gpu:
    """Counts cycles at a clock that rises, on the device that is current."""

    def __init__(self, mhz: list[float]) -> None:
        self.mhz, self.current, self.spins, self.ns = mhz, "cuda:0", [], 0.0

    def spin(self, cycles: int) -> None:
        self.spins.append((self.current, cycles))
        self.ns += cycles / self.mhz[min(len(self.spins), len(self.mhz)) - 1] * 1e3

    def event(self):
        return Event(self)

    def device(self, name: str):
        return On(self, name)


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.ns = gpu, 0.0

    def record(self, stream: object) -> None:
        self.ns = self.gpu.ns

    def elapsed_time(self, end: Event) -> float:
        return (end.ns - self.ns) / 1e6


class On:
    def __init__(self, gpu: Gpu, name: str) -> None:
        self.gpu, self.name, self.before = gpu, name, ""

    def __enter__(self) -> None:
        self.before, self.gpu.current = self.gpu.current, self.name

    def __exit__(self, *error: object) -> None:
        self.gpu.current = self.before


def opened(gpu: Gpu, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(device_sleep, "SLEEP_REFERENCES", capture(gpu, "spin"))
    monkeypatch.setattr(torch.cuda, "device", gpu.device)
    return open_cuda_sleep(FakeDevice(kind="cuda", torch_name="cuda:1"), gpu.event, lambda: None)


def test_a_sleep_has_the_length_it_was_asked_for_once_the_clock_has_risen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = Gpu([345, 1200, 1980, 1980])
    sleep = opened(gpu, monkeypatch)
    assert sleep is not None
    assert len(gpu.spins) == 4  # two in a row agree
    queue = sleep(100_000)
    before = gpu.ns
    queue()
    assert gpu.ns - before == pytest.approx(100_000, rel=1e-3)


def test_a_clock_that_never_settles_makes_a_sleep_longer_and_not_shorter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = Gpu([1000, 2000] * 20)
    sleep = opened(gpu, monkeypatch)
    assert sleep is not None
    for _ in range(2):
        before = gpu.ns
        sleep(100_000)()
        assert gpu.ns - before >= 99_999


def test_it_is_queued_on_its_own_device_whichever_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu([2000])
    sleep = opened(gpu, monkeypatch)
    assert sleep is not None
    sleep(0)()
    assert gpu.spins[-1] == ("cuda:1", 1)
    assert {device for device, _ in gpu.spins} == {"cuda:1"}
    assert gpu.current == "cuda:0"


def test_a_device_on_which_a_spin_takes_no_time_has_no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(Gpu([float("inf")]), monkeypatch) is None


def test_a_torch_without_the_spin_has_no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_sleep, "SLEEP_REFERENCES", ())
    assert open_cuda_sleep(FakeDevice(kind="cuda"), list, list) is None


def test_the_spin_of_torch_is_among_what_a_reading_rests_on() -> None:
    from kernelmark.timing.timers.device_events import DeviceEventsTimer

    held = {(each.owner, each.name) for each in DeviceEventsTimer.own_references}
    assert {(torch.cuda, "_sleep"), (torch.Event, "query")} <= held
