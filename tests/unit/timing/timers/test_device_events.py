"""Device events, on a device that is faked down to its queue, and on one whose host and queue have a clock each."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable

import pytest
import torch

from kernelmark.device import FakeDevice
from kernelmark.errors import TimingError, UnavailableError
from kernelmark.report.notes import note_text
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

    def query(self) -> bool:
        return not math.isnan(self.ns)

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
    assert "gaps where the device waits for a launch are in it" in note_text(found.notes[0])


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


# --- behind a sleep ---------------------------------------------------------------------------------

US = 1_000


class Concurrent(FakeDevice):
    """A device whose queue runs beside the host: what is queued starts when both of them have got there."""

    __slots__ = ("free_ns",)

    def __init__(self, kind: str = "cuda") -> None:
        super().__init__(kind=kind, default_timer="device_events")
        self.free_ns = 0

    def launch(self, name: str, *, host_ns: int, work_ns: int) -> None:
        self.log.append(name)
        self.clock.advance(host_ns)
        self.free_ns = max(self.free_ns, self.clock.now_ns) + work_ns

    def synchronize(self) -> None:
        self.log.append("synchronize")
        self.clock.now_ns = max(self.clock.now_ns, self.free_ns)

    def sleep(self, ns: float) -> Callable[[], None]:
        return lambda: self.launch(f"sleep {ns / US:g}", host_ns=3 * US, work_ns=int(ns))


class ConcurrentEvent:
    """An event that costs the host 1 µs, and is passed when the queue has got to it."""

    def __init__(self, device: Concurrent) -> None:
        self.device, self.ns = device, -1

    def record(self, stream: object) -> None:
        self.device.log.append("record")
        self.device.clock.advance(US)
        self.device.free_ns = self.ns = max(self.device.free_ns, self.device.clock.now_ns)

    def query(self) -> bool:
        return self.device.clock.now_ns >= self.ns

    def elapsed_time(self, end: ConcurrentEvent) -> float:
        return (end.ns - self.ns) / 1e6


@pytest.fixture
def gpu() -> Concurrent:
    return Concurrent()


def events(gpu: Concurrent, **options) -> DeviceEventsTimer:
    given = {"sleep": gpu.sleep, "clock": gpu.clock, **options}
    return DeviceEventsTimer(lambda: ConcurrentEvent(gpu), **given)


def read(gpu: Concurrent, run, **options):
    budget = Budget(warmup_ms=1, sample_ms=1, max_count=20)
    return time_together(
        {"a": Call(run)}, gpu, timer=events(gpu, **options), options=TimingOptions(budget=budget)
    )["a"]


def slow_to_launch(gpu: Concurrent) -> None:
    gpu.launch("run", host_ns=40 * US, work_ns=17 * US)


def test_behind_a_sleep_what_the_host_takes_to_launch_is_not_in_the_reading(gpu: Concurrent) -> None:
    plain = read(gpu, lambda: slow_to_launch(gpu), hide_launches=False)
    hidden = read(gpu, lambda: slow_to_launch(gpu))
    assert plain.device_busy.median_ns == 57 * US
    assert hidden.device_busy.median_ns == hidden.device_busy.p90_ns == 17 * US
    assert note_text(hidden.notes[1]) == (
        "device_events: launching (42 µs on the host) is hidden behind a sleep of 134 µs on the device"
    )
    assert "no call is queued behind a sleep" in note_text(plain.notes[1])


def test_the_empty_call_is_read_behind_a_sleep_too(gpu: Concurrent) -> None:
    assert read(gpu, lambda: slow_to_launch(gpu)).instrument_empty_ns == 0
    assert "sleep 54" in gpu.log  # twice the two microseconds that the events take, and the margin


def test_the_sleep_stands_between_what_prepares_a_call_and_its_first_event(gpu: Concurrent) -> None:
    timer = events(gpu)
    timer.open(gpu)
    call = Call(lambda: slow_to_launch(gpu))
    timer.sample(call, lambda: gpu.log.append("prepare"), 1)
    gpu.log.clear()
    timer.sample(call, lambda: gpu.log.append("prepare"), 2)
    one = ["prepare", "sleep 134", "record", "run", "record"]
    assert [each for each in gpu.log if each != "synchronize"][-10:] == [*one, *one]
    assert gpu.log.count("synchronize") == 2


def test_a_call_is_tried_once_each_way_if_it_is_long_and_thrice_otherwise(gpu: Concurrent) -> None:
    for work_ns, calls in ((17 * US, 6), (100_000 * US, 2)):
        timer = events(gpu)
        timer.open(gpu)
        gpu.log.clear()
        call = Call(lambda work_ns=work_ns: gpu.launch("run", host_ns=5 * US, work_ns=work_ns))
        timer.sample(call, lambda: None, 1)
        timer.sample(call, lambda: None, 1)
        assert gpu.log.count("run") == calls + 2


def test_a_reading_for_which_the_host_was_late_all_the_same_is_counted(gpu: Concurrent) -> None:
    hosts = iter([40] * 10 + [500] + [40] * 1000)
    found = read(gpu, lambda: gpu.launch("run", host_ns=next(hosts) * US, work_ns=17 * US))
    assert "is hidden behind a sleep of 134 µs on the device, but for 1 of 25 readings" in note_text(
        found.notes[1]
    )


def test_a_call_that_waits_for_the_device_keeps_its_own_wait_and_not_the_sleep(gpu: Concurrent) -> None:
    def waits() -> None:
        slow_to_launch(gpu)
        gpu.synchronize()
        slow_to_launch(gpu)

    found = read(gpu, waits)
    assert found.device_busy.median_ns == (17 + 40 + 17) * US
    assert "waits for the device by itself" in note_text(found.notes[1])


def test_a_call_that_takes_too_long_to_launch_is_read_without_a_sleep_and_says_so(gpu: Concurrent) -> None:
    found = read(gpu, lambda: gpu.launch("run", host_ns=5_000 * US, work_ns=17 * US))
    assert found.device_busy.median_ns == 5_017 * US
    assert "the host takes 5.0 ms to launch the call" in note_text(found.notes[1])
    assert {each for each in gpu.log if each.startswith("sleep")} == {"sleep 0", "sleep 2000", "sleep 54"}


def test_a_call_that_does_not_wait_for_what_is_queued_before_it_is_refused(gpu: Concurrent) -> None:
    side_ns = 0

    def on_a_stream_of_its_own() -> None:
        nonlocal side_ns
        gpu.clock.advance(10 * US)
        side_ns = max(side_ns, gpu.clock.now_ns) + 300 * US
        gpu.free_ns = max(
            gpu.free_ns, side_ns
        )  # the current stream waits for it; it does not wait for that one

    with pytest.raises(TimingError, match=r"Let it wait \(side\.wait_stream\(current\)\)"):
        read(gpu, on_a_stream_of_its_own)


@pytest.mark.spec("T34")
def test_a_device_without_a_sleep_is_read_as_it_is_and_the_note_says_so() -> None:
    gpu = Concurrent(kind="xpu")
    found = read(gpu, lambda: slow_to_launch(gpu), sleep=None)
    assert found.device_busy.median_ns == 57 * US
    assert "cpu has no sleep to queue a call behind" in note_text(found.notes[1])
