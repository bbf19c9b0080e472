"""The host timer, on a fake clock and on the real one."""

from __future__ import annotations

import time
import weakref

import pytest
import torch

from kernelmark.device import FakeDevice
from kernelmark.errors import TimingError
from kernelmark.timing import Call
from kernelmark.timing.timers.host import HostTimer


def _opened(device: FakeDevice) -> HostTimer:
    timer = HostTimer(device.clock)
    timer.open(device)
    return timer


def test_a_reading_is_the_call_and_nothing_of_what_prepared_it() -> None:
    device = FakeDevice()
    times = iter([100, 250, 175])
    samples = _opened(device).sample(
        Call(lambda: device.clock.advance(next(times))), lambda: device.clock.advance(9_999), 3
    )
    assert samples.latency_ns == samples.device_busy_ns == (100, 250, 175)
    assert (samples.n_kernels, samples.kernels) == (None, ())


def test_arguments_reach_the_call() -> None:
    device, seen = FakeDevice(), []
    _opened(device).sample(Call(lambda *args: seen.append(args), (1, "two")), lambda: None, 2)
    assert seen == [(1, "two")] * 2


def test_on_a_synchronous_device_nothing_is_waited_for() -> None:
    device = FakeDevice(kind="cpu")
    timer = _opened(device)
    timer.sample(Call(lambda: None), lambda: None, 3)
    assert device.log == []
    assert timer.notes == ()


def test_on_an_asynchronous_device_a_reading_holds_the_wait_and_not_what_was_queued_before() -> None:
    device = FakeDevice(kind="cuda")
    timer = _opened(device)
    samples = timer.sample(Call(lambda: device.queue(700)), lambda: device.queue(40_000), 2)
    assert samples.latency_ns == (700, 700)
    assert device.log == ["synchronize"] * 6  # for the flush, in the rehearsal, and for the call
    assert "until the device has finished" in timer.notes[0]


def test_the_last_result_is_handed_out_once() -> None:
    timer = _opened(FakeDevice())
    results = iter("abc")
    timer.sample(Call(lambda: next(results)), lambda: None, 3)
    assert timer.take_result() == "c"
    assert timer.take_result() is None


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_result_is_freed_before_the_next_round_is_prepared(kind: str) -> None:
    born: list[weakref.ref] = []

    def run() -> set[int]:
        made = set([1])  # noqa: C405 - a literal set may be shared, this one may not
        born.append(weakref.ref(made))
        return made

    def prepare() -> None:
        assert all(ref() is None for ref in born)

    _opened(FakeDevice(kind=kind)).sample(Call(run), prepare, 3)


def test_a_clock_that_goes_backwards_gives_no_time() -> None:
    device = FakeDevice()
    with pytest.raises(TimingError, match="went backwards by 30 ns"):
        _opened(device).sample(Call(lambda: device.clock.advance(-30)), lambda: None, 1)


def test_the_real_clock_reads_a_real_call() -> None:
    timer = HostTimer()
    timer.open(FakeDevice(kind="cpu"))
    x = torch.randn(128, 128)
    samples = timer.sample(Call(torch.matmul, (x, x)), lambda: None, 20)
    assert all(isinstance(each, int) and each > 0 for each in samples.latency_ns)
    assert torch.equal(timer.take_result(), x @ x)


def test_the_timer_itself_takes_less_than_two_microseconds_a_sample() -> None:
    # The smallest of many readings: a busy machine makes some longer, it makes none shorter.
    timer = HostTimer()
    timer.open(FakeDevice(kind="cpu"))
    readings = timer.sample(Call(lambda: None), lambda: None, 500).latency_ns
    assert min(readings) < 2_000


def test_a_clock_that_was_replaced_is_found_out_and_was_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = HostTimer()
    timer.open(FakeDevice(kind="cpu"))
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    readings = timer.sample(Call(sum, (range(1000),)), lambda: None, 3).latency_ns
    assert all(each > 0 for each in readings)
    with pytest.raises(TimingError, match=r"time\.perf_counter_ns is now"):
        timer.verify_own_references()
