"""Device events, on a device that is faked down to its queue."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable

import pytest
import torch

from kernelmark.device import FakeDevice
from kernelmark.errors import TimingError, UnavailableError
from kernelmark.timing import Budget, Call, TimingOptions, time_together
from kernelmark.timing.timers.device_events import DeviceEventsTimer


class Queue(FakeDevice):
    """An asynchronous device: what is queued happens, in order, when it is waited for."""

    __slots__ = ("pending",)

    def __init__(self) -> None:
        super().__init__(kind="xpu", default_timer="device_events")
        self.pending: list[Callable[[], object]] = []

    def launch(self, name: str, ns: int) -> None:
        self.log.append(name)
        self.pending.append(lambda: self.clock.advance(ns))

    def synchronize(self) -> None:
        super().synchronize()
        for each in self.pending:
            each()
        self.pending.clear()


class QueuedEvent:
    """An event that notes the device's clock when the queue reaches it."""

    made = 0

    def __init__(self, device: Queue) -> None:
        self.device, self.ns = device, math.nan
        device.log.append("make event")

    def record(self, stream: object) -> None:
        self.device.log.append("record")
        self.device.pending.append(lambda: setattr(self, "ns", self.device.clock()))

    def elapsed_time(self, end: QueuedEvent) -> float:
        self.device.log.append("elapsed")
        return (end.ns - self.ns) / 1e6


@pytest.fixture
def device() -> Queue:
    return Queue()


@pytest.fixture
def timer(device: Queue) -> DeviceEventsTimer:
    timer = DeviceEventsTimer(lambda: QueuedEvent(device))
    timer.open(device)
    device.log.clear()
    return timer


@pytest.mark.spec("T29", "T34")
def test_each_round_is_prepared_and_then_lies_between_its_own_events(device: Queue, timer) -> None:
    times = iter([3_000, 5_000])
    samples = timer.sample(
        Call(lambda: device.launch("run", next(times))), lambda: device.launch("prepare", 800_000), 2
    )
    assert samples.latency_ns == samples.device_busy_ns == pytest.approx((3_000, 5_000))
    rounds = [event for event in device.log if event != "make event"]
    one = ["prepare", "record", "run", "record"]
    start = rounds.index("prepare")
    assert rounds[start:] == [*one, *one, "synchronize", "elapsed", "elapsed"]


def test_the_host_waits_only_before_and_after_a_pass(device: Queue, timer) -> None:
    timer.sample(Call(lambda: device.launch("run", 1)), lambda: None, 50)
    assert device.log.count("synchronize") == 2


def test_events_are_made_and_first_recorded_outside_the_rounds_and_kept(device: Queue, timer) -> None:
    call = Call(lambda: device.launch("run", 1))
    timer.sample(call, lambda: None, 6)
    first_round = device.log.index("run")
    assert "make event" not in device.log[first_round:]
    assert device.log[: first_round - 1].count("record") == device.log.count("make event") == 10
    device.log.clear()
    timer.sample(call, lambda: None, 6)
    assert "make event" not in device.log


def test_the_pair_reads_itself_and_the_row_says_what_a_reading_holds(device: Queue) -> None:
    class Costly(QueuedEvent):
        def record(self, stream: object) -> None:
            super().record(stream)
            device.pending.append(lambda: device.clock.advance(1_300))

    found = time_together(
        {"a": Call(lambda: device.launch("run", 10_000))},
        device,
        timer=DeviceEventsTimer(lambda: Costly(device)),
        options=TimingOptions(budget=Budget(warmup_ms=1, sample_ms=1, max_count=20)),
    )["a"]
    assert found.instrument_empty_ns == pytest.approx(1_300)
    assert found.device_busy.median_ns == pytest.approx(11_300)
    assert (found.timer, found.gap_ns) == ("device_events", None)
    assert "gaps where the device waits for a launch are in it" in found.notes[0]


def test_only_one_result_is_alive_at_a_time(device: Queue, timer) -> None:
    born: list[weakref.ref] = []

    def run() -> set[int]:
        made = set([1])  # noqa: C405 - a literal set may be shared, this one may not
        born.append(weakref.ref(made))
        return made

    def prepare() -> None:
        assert all(ref() is None for ref in born)

    timer.sample(Call(run), prepare, 3)
    assert timer.take_result() == {1}
    assert all(ref() is None for ref in born)


@pytest.mark.parametrize("elapsed", [-0.5, math.nan, math.inf])
def test_what_is_no_time_gives_no_sample(timer, elapsed: float) -> None:
    with pytest.raises(TimingError, match="which is no time"):
        timer.attribute([1.0, elapsed], count_copies=False)


def test_attributing_turns_milliseconds_into_nanoseconds(timer) -> None:
    assert timer.attribute([0.0, 0.25], count_copies=True).latency_ns == (0, 250_000)


@pytest.mark.spec("T33")
def test_events_that_keep_no_time_are_found_out_when_the_timer_is_opened() -> None:
    with pytest.raises(UnavailableError, match="torch has no events that keep time on cpu"):
        DeviceEventsTimer().open(FakeDevice(kind="xpu", torch_name="cpu"))


def test_an_error_that_was_there_before_is_not_blamed_on_the_events(device: Queue) -> None:
    device.failure = RuntimeError("an earlier launch failed")
    with pytest.raises(RuntimeError, match="earlier launch"):
        DeviceEventsTimer(lambda: QueuedEvent(device)).open(device)


def test_an_error_of_the_device_in_a_pass_propagates(device: Queue, timer) -> None:
    def run() -> None:
        device.failure = RuntimeError("illegal address")

    with pytest.raises(RuntimeError, match="illegal address"):
        timer.sample(Call(run), lambda: None, 2)


def test_a_closed_timer_reads_nothing(timer) -> None:
    timer.close()
    timer.close()
    with pytest.raises(TimingError, match="not open"):
        timer.sample(Call(lambda: None), lambda: None, 1)


def test_a_synchronisation_that_was_replaced_is_found_out(timer, monkeypatch: pytest.MonkeyPatch) -> None:
    timer.verify_own_references()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    with pytest.raises(TimingError, match=r"torch\.cuda\.synchronize is now"):
        timer.verify_own_references()
