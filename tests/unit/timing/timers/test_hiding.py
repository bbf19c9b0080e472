"""The sleep of a CUDA device: how many cycles make a nanosecond, and on which device it is queued."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.device import FakeDevice
from kernelmark.errors import TimingError
from kernelmark.timing.timer import capture
from kernelmark.timing.timers import hiding
from kernelmark.timing.timers.hiding import (
    LONGEST_SLEEP_NS,
    Cover,
    Trial,
    choose_cover,
    launch_latency_ns,
    open_cuda_sleep,
)


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
    monkeypatch.setattr(hiding, "SLEEP_REFERENCES", capture(gpu, "spin"))
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
    monkeypatch.setattr(hiding, "SLEEP_REFERENCES", ())
    assert open_cuda_sleep(FakeDevice(kind="cuda"), list, list) is None


def test_the_spin_of_torch_is_among_what_a_reading_rests_on() -> None:
    from kernelmark.timing.timers.device_events import DeviceEventsTimer

    held = {(each.owner, each.name) for each in DeviceEventsTimer.own_references}
    assert {(torch.cuda, "_sleep"), (torch.Event, "query")} <= held


# --- how long it must be --------------------------------------------------------------------------------

US = 1_000
MS = 1_000_000


def choose(*, idle: list[Trial], covered: list[Trial], latency_ns: float = 0.0) -> Cover:
    return choose_cover(idle=idle, covered=covered, latency_ns=latency_ns)


def trials(host_ns: float, read_ns: float, count: int = 3) -> list[Trial]:
    return [Trial(host_ns, read_ns)] * count


def test_the_sleep_is_longer_than_the_host_takes_and_follows_its_median() -> None:
    idle = [Trial(30 * US, 45 * US), Trial(20 * US, 40 * US), Trial(900 * US, 950 * US)]
    cover = choose(idle=idle, covered=trials(30 * US, 18 * US))
    assert cover == Cover(host_ns=30 * US, sleep_ns=110 * US)


@given(st.floats(0, 100 * MS), st.floats(0, 10 * MS))
def test_a_sleep_covers_the_launch_or_there_is_none_and_it_is_never_longer_than_the_limit(
    host_ns: float, work_ns: float
) -> None:
    cover = choose(idle=trials(host_ns, host_ns + work_ns), covered=trials(host_ns, work_ns))
    assert cover.sleep_ns == 0 or host_ns < cover.sleep_ns <= LONGEST_SLEEP_NS
    assert not cover.waits


def test_a_call_that_takes_as_much_longer_as_the_sleep_waits_for_the_device() -> None:
    cover = choose(idle=trials(60 * US, 60 * US), covered=trials(LONGEST_SLEEP_NS + 60 * US, 55 * US))
    assert cover.waits
    assert cover.sleep_ns == 170 * US
    assert "waits for the device by itself" in cover.note(200, 200)


def test_one_slow_trial_does_not_make_a_call_one_that_waits() -> None:
    covered = [Trial(3 * MS, 18 * US), Trial(30 * US, 18 * US)]
    assert not choose(idle=trials(30 * US, 40 * US), covered=covered).waits


def test_a_call_of_many_launches_is_left_uncovered_and_the_note_gives_both_times() -> None:
    cover = choose(idle=trials(5 * MS, 5 * MS), covered=trials(5 * MS, 4 * MS))
    assert cover.sleep_ns == 0
    note = cover.note(0, 200)
    assert "takes 5.0 ms to launch" in note
    assert "at most 2.0 ms: launching is in the reading" in note


def test_a_long_call_that_waits_is_told_from_one_that_is_slow_to_launch() -> None:
    cover = choose(idle=trials(5 * MS, 5 * MS), covered=trials(7 * MS, 5 * MS))
    assert cover == Cover(5 * MS, LONGEST_SLEEP_NS, waits=True)


@pytest.mark.parametrize("work_us", [15, 100, 1900])
def test_work_that_is_over_before_its_reading_begins_is_refused(work_us: int) -> None:
    idle = trials(10 * US, (15 + work_us) * US)
    with pytest.raises(
        TimingError, match=r"behind queued work the call reads 2.00 µs, .*does not wait for the"
    ):
        choose(idle=idle, covered=trials(10 * US, 2 * US))


def test_a_device_on_which_a_launch_takes_long_to_start_is_not_blamed_on_the_call() -> None:
    choose(idle=trials(10 * US, 40 * US), covered=trials(10 * US, 2 * US), latency_ns=15 * US)


def test_the_latency_of_a_launch_is_the_longest_seen_and_never_below_nothing() -> None:
    assert launch_latency_ns([Trial(5 * US, 9 * US), Trial(5 * US, 20 * US)]) == 15 * US
    assert launch_latency_ns([Trial(5 * US, 1 * US)]) == 0


def test_a_reading_with_an_idle_device_may_hold_all_of_the_launching() -> None:
    choose(idle=trials(40 * US, 55 * US), covered=trials(40 * US, 3 * US))


@pytest.mark.parametrize(
    ("late", "told"), [(0, "on the device"), (3, "on the device, but for 3 of 205 readings")]
)
def test_the_note_says_how_long_both_take_and_how_often_the_device_came_first(late: int, told: str) -> None:
    note = Cover(host_ns=30 * US, sleep_ns=110 * US).note(late, 205)
    assert note.startswith("device_events: launching (30 µs on the host) is hidden behind a sleep of 110 µs")
    assert note.endswith(told)
