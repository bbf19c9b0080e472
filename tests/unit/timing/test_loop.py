"""The loop over blocks, on a device whose clock moves only when told."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable

import pytest

from kernelmark.device import FakeDevice
from kernelmark.errors import TimingError, UnavailableError, UsageError
from kernelmark.records import PassRecord
from kernelmark.report.notes import note_text
from kernelmark.timing import (
    AtPrecision,
    Budget,
    Call,
    Samples,
    Timer,
    TimingOptions,
    block_samples,
    time_together,
)
from kernelmark.timing.timers.host import HostTimer

SMALL = Budget(warmup_ms=1, sample_ms=4, min_count=4, max_count=8, blocks=2)
"""Calls of 1 ms: four warm-up rounds, four samples in two blocks, one in each pass."""


class LoggingTimer(HostTimer):
    """The real host timer on a fake clock; it logs when it is opened and closed, and each pass's size."""

    def __init__(self, device: FakeDevice) -> None:
        super().__init__(device.clock)
        self.log, self.is_open = device.log, False

    def open(self, device: FakeDevice) -> None:
        super().open(device)
        self.log.append("open")
        self.is_open = True

    def close(self) -> None:
        self.log.append("close")
        self.is_open = False

    def collect(self, call: Call, prepare: Callable[[], object], count: int):
        self.log.append(f"collect {count}")
        return super().collect(call, prepare, count)


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice(flush_ns=50_000)


def work(device: FakeDevice, name: str, ns: int = 1_000_000, *, reset_ns: int | None = None) -> Call:
    def run() -> None:
        device.log.append(name)
        device.clock.advance(ns)

    def reset() -> None:
        device.log.append(f"reset {name}")
        device.clock.advance(reset_ns or 0)

    return Call(run, (), None if reset_ns is None else reset)


def together(device: FakeDevice, calls: dict[str, Call], *, timer: Timer | None = None, **rest):
    cache = rest.pop("cache", "cold")
    budget = rest.pop("budget", SMALL)
    return time_together(
        calls,
        device,
        timer=timer or LoggingTimer(device),
        options=TimingOptions(budget=budget, cache=cache),
        **rest,
    )


# --- order ------------------------------------------------------------------------------------------


@pytest.mark.spec("T29")
def test_every_round_of_every_phase_is_reset_flush_run(device: FakeDevice) -> None:
    together(device, {"a": work(device, "a", reset_ns=10)})
    runs = [place for place, event in enumerate(device.log) if event == "a"]
    assert len(runs) == 1 + 5 + 4 + 4  # first call, calibration, warm-up, samples
    for place in runs:
        assert device.log[place - 2 : place + 1] == ["reset a", "flush", "a"]


@pytest.mark.spec("T29")
def test_what_reset_and_flush_take_is_not_in_the_reading(device: FakeDevice) -> None:
    device.flush_ns = 70_000_000
    found = together(device, {"a": work(device, "a", 1_000, reset_ns=30_000_000)})["a"]
    assert found.latency.min_ns == found.latency.max_ns == found.device_busy.median_ns == 1_000
    assert found.calibration_ns == 1_000


def test_warm_rounds_reset_and_do_not_flush(device: FakeDevice) -> None:
    together(device, {"a": work(device, "a", reset_ns=10)}, cache="warm")
    assert "flush" not in device.log
    runs = [place for place, event in enumerate(device.log) if event == "a"]
    assert all(device.log[place - 1] == "reset a" for place in runs)


def test_the_phases_come_in_order_and_the_timer_is_open_over_all_of_them(device: FakeDevice) -> None:
    together(device, {"a": work(device, "a"), "b": work(device, "b")})
    seen = [event for event in device.log if event not in ("flush", "synchronize", "telemetry")]
    a_pass, b_pass = ["collect 1", "a"], ["collect 1", "b"]
    first_calls = ["a", "collect 5", *"aaaaa", "b", "collect 5", *"bbbbb"]
    blocks = a_pass + b_pass + b_pass + a_pass + b_pass + a_pass + a_pass + b_pass
    assert seen == ["open", "collect 5", *first_calls, *"aaaa", *"bbbb", *blocks, "close"]


@pytest.mark.spec("T28")
def test_passes_are_mirrored_in_blocks_and_equal_in_size(device: FakeDevice) -> None:
    calls = {name: work(device, name) for name in "abc"}
    order: list[tuple[int, str]] = []
    found = together(device, calls, after_pass=lambda name, record, _: order.append((record.block, name)))
    assert [name for block, name in order if block == 0] == list("abccba")
    assert [name for block, name in order if block == 1] == list("cbaabc")
    for timing in found.values():
        assert len({len(each.latency_ns) for each in timing.passes}) == 1
        assert Counter(each.block for each in timing.passes) == {0: 2, 1: 2}


@pytest.mark.spec("T28")
def test_one_block_is_the_plain_protocol(device: FakeDevice) -> None:
    budget = Budget(warmup_ms=0, sample_ms=40, min_count=4, max_count=40, blocks=1)
    found = together(device, {"a": work(device, "a"), "b": work(device, "b")}, budget=budget)
    assert [len(each.latency_ns) for each in found["a"].passes] == [20, 20]
    assert [each.position for each in found["a"].passes] == [0, 3]
    assert len(block_samples(found["b"])) == 1


def test_a_slow_and_a_fast_call_share_their_blocks(device: FakeDevice) -> None:
    found = together(device, {"fast": work(device, "fast", 1_000), "slow": work(device, "slow", 900_000_000)})
    assert found["fast"].device_busy.samples == 8
    assert found["slow"].device_busy.samples == 4
    assert len(block_samples(found["fast"])) == len(block_samples(found["slow"])) == 2


@pytest.mark.parametrize(
    ("ns", "per_pass", "lead_in", "words"),
    [(1_000_000, 1, ["a"], "1 round"), (1_000, 2, ["a", "a"], "2 rounds")],
)
def test_a_warm_pass_is_led_in_untimed_and_the_row_says_so(
    device: FakeDevice, ns: int, per_pass: int, lead_in: list[str], words: str
) -> None:
    found = together(device, {"a": work(device, "a", ns)}, cache="warm")["a"]
    places = [place for place, event in enumerate(device.log) if event == f"collect {per_pass}"]
    assert len(places) == 4
    expected = ["telemetry", *lead_in, "synchronize"]
    assert all(device.log[place - len(expected) : place] == expected for place in places)
    assert any(f"starts with {words} untimed" in note_text(note) for note in found.notes)


def test_a_cold_pass_has_no_untimed_round(device: FakeDevice) -> None:
    found = together(device, {"a": work(device, "a")})["a"]
    places = [place for place, event in enumerate(device.log) if event == "collect 1"]
    assert all(device.log[place - 1] == "telemetry" for place in places)
    assert not found.notes


# --- what is recorded -------------------------------------------------------------------------------


def test_the_row_holds_what_was_done(device: FakeDevice) -> None:
    found = together(device, {"a": work(device, "a")})["a"]
    assert (found.timer, found.cache, found.warmup_count) == ("host", "cold", 4)
    assert (found.device_busy.samples, found.drift, found.retries) == (4, 0, 0)
    assert found.instrument_empty_ns == 0
    assert all(each.before is not None and each.after is not None for each in found.passes)


def test_the_empty_reading_is_what_the_clock_itself_costs(device: FakeDevice) -> None:
    device.clock.tick_ns = 40
    found = together(device, {"a": work(device, "a")})["a"]
    assert found.instrument_empty_ns == 40
    assert found.device_busy.median_ns == 1_000_040


def test_drift_between_the_halves_shows(device: FakeDevice) -> None:
    passes_seen = Counter()

    def run() -> None:
        device.clock.advance(1_000_000 if passes_seen["a"] < 2 else 1_200_000)

    def after_pass(name: str, _record: PassRecord, _result: object) -> None:
        passes_seen[name] += 1

    assert together(device, {"a": Call(run)}, after_pass=after_pass)["a"].drift == pytest.approx(0.2)


def test_fewer_samples_than_asked_for_are_explained(device: FakeDevice) -> None:
    found = together(device, {"a": work(device, "a", 30_000_000)}, budget=Budget(warmup_ms=1))["a"]
    assert any("exceed the budget" in note_text(note) for note in found.notes)
    assert any("5 blocks rather than 10" in note_text(note) for note in found.notes)


# --- results ----------------------------------------------------------------------------------------


class Result:
    """Something a call can return and a weak reference can watch."""


def test_one_result_at_a_time_is_alive_and_none_at_the_end(device: FakeDevice) -> None:
    born: list[weakref.ref] = []
    alive_when_called, alive_after_pass = [], []

    def alive() -> int:
        return sum(ref() is not None for ref in born)

    def run() -> Result:
        alive_when_called.append(alive())
        made = Result()
        born.append(weakref.ref(made))
        device.clock.advance(100)
        return made

    def after_pass(_name: str, _record: PassRecord, result: object) -> None:
        assert result is born[-1]()
        alive_after_pass.append(alive())

    together(device, {"a": Call(run), "b": Call(run)}, after_pass=after_pass)
    assert set(alive_when_called) == {0}
    assert set(alive_after_pass) == {1}
    assert alive() == 0


def test_freeing_a_result_is_in_no_reading(device: FakeDevice) -> None:
    class Costly:
        def __del__(self) -> None:
            device.clock.advance(5_000_000)

    def run() -> Costly:
        device.clock.advance(1_000)
        return Costly()

    found = together(device, {"a": Call(run)})["a"]
    assert (found.latency.min_ns, found.latency.max_ns) == (1_000, 1_000)


def test_results_are_let_go_without_anyone_to_look_at_them(device: FakeDevice) -> None:
    born: list[weakref.ref] = []

    def run() -> Result:
        made = Result()
        born.append(weakref.ref(made))
        return made

    together(device, {"a": Call(run)})
    assert all(ref() is None for ref in born)


# --- errors -----------------------------------------------------------------------------------------


class OwnError(Exception):
    """An implementation's own error."""


def fails_at(device: FakeDevice, call_number: int, error: BaseException) -> Call:
    calls = Counter()

    def run() -> None:
        calls["a"] += 1
        device.clock.advance(1_000_000)
        if calls["a"] == call_number:
            assert not gc.isenabled() or call_number in (1, 7)
            raise error

    return Call(run)


@pytest.mark.spec("T33")
@pytest.mark.parametrize("call_number", [1, 3, 7, 12], ids=["first", "calibration", "warm-up", "samples"])
@pytest.mark.parametrize("error", [OwnError("mine"), KeyboardInterrupt()])
def test_an_error_of_the_call_propagates_unchanged_and_the_timer_is_closed(
    device: FakeDevice, call_number: int, error: BaseException
) -> None:
    timer = LoggingTimer(device)
    with pytest.raises(type(error)) as caught:
        together(device, {"a": fails_at(device, call_number, error)}, timer=timer)
    assert caught.value is error
    assert not timer.is_open
    assert device.log.count("close") == 1
    assert gc.isenabled()


def test_an_error_of_the_reset_and_of_the_callback_propagate_too(device: FakeDevice) -> None:
    def fail(*_: object) -> None:
        raise OwnError

    timer = LoggingTimer(device)
    with pytest.raises(OwnError):
        together(device, {"a": Call(lambda: None, (), fail)}, timer=timer)
    with pytest.raises(OwnError):
        together(device, {"a": work(device, "a")}, timer=timer, after_pass=fail)
    assert not timer.is_open
    assert gc.isenabled()


def test_a_failure_of_the_device_is_raised_where_it_is_waited_for(device: FakeDevice) -> None:
    def run() -> None:
        device.failure = OwnError("launch failed")

    with pytest.raises(OwnError, match="launch failed"):
        together(device, {"a": Call(run)})


def test_the_first_error_is_kept_when_closing_fails_too(device: FakeDevice) -> None:
    class BadlyClosing(LoggingTimer):
        def close(self) -> None:
            raise RuntimeError("cannot close")

    with pytest.raises(OwnError) as caught:
        together(device, {"a": fails_at(device, 3, OwnError("mine"))}, timer=BadlyClosing(device))
    assert caught.value.__notes__[-1] == "closing the host timer failed too: RuntimeError('cannot close')"
    with pytest.raises(RuntimeError, match="cannot close"):
        together(device, {"a": work(device, "a")}, timer=BadlyClosing(device))


def test_a_timer_that_cannot_open_is_closed_and_its_error_is_the_error(device: FakeDevice) -> None:
    class Unopenable(LoggingTimer):
        def open(self, device: FakeDevice) -> None:
            raise UnavailableError("not here")

    with pytest.raises(UnavailableError, match="not here"):
        together(device, {"a": work(device, "a")}, timer=Unopenable(device))
    assert device.log == ["close"]


def test_no_call_at_all_is_refused_before_anything_is_opened(device: FakeDevice) -> None:
    with pytest.raises(UsageError, match="nothing to time"):
        together(device, {})
    assert device.log == []


def test_a_timer_that_loses_a_reading_gives_none(device: FakeDevice) -> None:
    class Lossy(LoggingTimer):
        def attribute(self, collected, *, count_copies: bool) -> Samples:
            whole = super().attribute(collected, count_copies=count_copies)
            return Samples(whole.latency_ns[1:], whole.device_busy_ns[1:])

    with pytest.raises(TimingError, match="4 readings for 5 calls"):
        together(device, {"a": work(device, "a")}, timer=Lossy(device))


@pytest.mark.parametrize("name", ["disable", "isenabled"])
def test_a_call_that_replaces_what_the_loop_uses_gets_no_time(
    device: FakeDevice, monkeypatch, name: str
) -> None:
    def run() -> None:
        monkeypatch.setattr(gc, name, lambda: None)

    timer = LoggingTimer(device)
    with pytest.raises(TimingError, match=rf"gc\.{name} is now"):
        together(device, {"a": Call(run)}, timer=timer)
    assert not timer.is_open


# --- garbage collection -----------------------------------------------------------------------------


def test_collection_is_off_in_timed_calls_and_on_in_between(device: FakeDevice) -> None:
    in_calls, in_between = [], []
    calls = {"a": Call(lambda: in_calls.append(gc.isenabled()))}
    together(device, calls, after_pass=lambda *_: in_between.append(gc.isenabled()))
    assert not any(in_calls[-4:])
    assert all(in_between)
    assert gc.isenabled()


def test_collection_that_was_off_stays_off(device: FakeDevice) -> None:
    gc.disable()
    try:
        together(device, {"a": work(device, "a")})
        assert not gc.isenabled()
    finally:
        gc.enable()


# --- timers that say more ---------------------------------------------------------------------------


class CountingTimer(LoggingTimer):
    """A timer that refuses empty calls, tells gaps, and hears of the copy policy."""

    tells_gap = True
    reads_empty = False

    def attribute(self, collected, *, count_copies: bool) -> Samples:
        latency = super().attribute(collected, count_copies=count_copies).latency_ns
        busy = tuple(each - (0 if count_copies else 300) for each in latency)
        return Samples(latency, busy, n_kernels=(2,) * len(busy), retries=1)


def test_a_timer_that_refuses_empty_calls_is_asked_for_none(device: FakeDevice) -> None:
    found = together(device, {"a": work(device, "a")}, timer=CountingTimer(device))["a"]
    assert found.instrument_empty_ns is None
    assert (found.gap_ns, found.n_kernels, found.retries) == (300, 2, 4)
    assert device.log.index("a") < device.log.index("collect 5")


@pytest.mark.spec("T30")
def test_the_copy_policy_reaches_the_timer_for_every_implementation(device: FakeDevice) -> None:
    options = TimingOptions(budget=SMALL, count_copies=True)
    calls = {name: work(device, name) for name in "ab"}
    found = time_together(calls, device, timer=CountingTimer(device), options=options)
    assert [each.gap_ns for each in found.values()] == [0, 0]


class DeviceWithWorkers(FakeDevice):
    """Each call leaves a worker of its own behind, which goes on until somebody waits for it."""

    def settle(self, familiar=()) -> None:
        self.log.append(f"settle {sorted(familiar)}")

    def working(self) -> frozenset[str]:
        return frozenset({f"worker of {self.log[-1] if self.log[-1] != 'synchronize' else self.log[-2]}"})


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_a_pass_may_find_its_own_workers_at_work_and_no_others(cache: str) -> None:
    device = DeviceWithWorkers(flush_ns=50_000)
    together(device, {"a": work(device, "a"), "b": work(device, "b")}, cache=cache)
    settled = [each for each in device.log if each.startswith("settle")]
    own = {name: f"settle ['worker of {name}']" for name in "ab"}
    # nobody's before the first call of each, its own before it is calibrated, before its warm-up and before each pass
    assert settled[:6] == ["settle []", own["a"], "settle []", own["b"], own["a"], own["b"]]
    assert Counter(settled[6:]) == Counter([own["a"]] * 4 + [own["b"]] * 4)


# --- counts that are corrected, clocks that differ, and a rule that stops ----------------------------


def test_a_calibration_that_was_held_up_does_not_end_in_few_samples(device: FakeDevice) -> None:
    held_up = iter([1, *[24_000_000] * 5])  # the first call, then the calibration

    def run() -> None:
        device.clock.advance(next(held_up, 35_000))

    found = together(device, {"a": Call(run), "b": work(device, "b", 30_000)}, budget=Budget())
    assert [timing.device_busy.samples for timing in found.values()] == [200, 200]
    assert any("counted anew after the first block" in note for note in map(note_text, found["a"].notes))
    assert not any("counted anew" in note for note in map(note_text, found["b"].notes))


def test_one_calibration_round_that_is_held_up_changes_nothing(device: FakeDevice) -> None:
    times = iter([1, 900_000_000, 900_000_000, 900_000_000, 900_000_000])

    def run() -> None:
        device.clock.advance(next(times, 1_000_000))

    found = together(device, {"a": Call(run)})["a"]
    assert found.calibration_ns == 1_000_000
    assert found.device_busy.samples == 4


def _at_clocks(device: FakeDevice, mhz: list[float]) -> Call:
    """Make a call that leaves the device at one clock after another, the last one for good; no warm-up counts."""
    left = iter(mhz)

    def run() -> None:
        device.clock.advance(1_000_000)
        device.queue(0)
        device.clock_mhz = next(left, mhz[-1])

    return Call(run)


PLAIN = Budget(warmup_count=0, sample_ms=8, min_count=8, max_count=8, blocks=4)
"""Calls of 1 ms: eight passes of one sample, after one call and five that calibrate."""


def test_a_block_with_a_pass_under_another_clock_is_run_again_and_that_is_told() -> None:
    device = FakeDevice(kind="cuda")
    call = _at_clocks(device, [1980.0] * 6 + [1980.0, 1980.0, 1965.0] + [1980.0])
    found = together(device, {"a": call}, timer=HostTimer(device.clock), budget=PLAIN)["a"]
    assert [each.after.clock_mhz for each in found.passes if each.after] == [1980.0] * 8
    assert found.repeated_passes == 2
    assert any(note.startswith("2 passes were run again") for note in map(note_text, found.notes))


def test_a_clock_that_goes_on_changing_is_run_again_within_the_budget_and_then_told() -> None:
    device = FakeDevice(kind="cuda")
    call = _at_clocks(device, [1980.0] * 6 + [1980.0, 1200.0, 1980.0, 1980.0, 1980.0] * 20)
    found = together(device, {"a": call}, timer=HostTimer(device.clock), budget=PLAIN)["a"]
    assert (found.repeated_passes or 0) <= 4  # half of the blocks, two passes each
    odd = [each for each in found.passes if each.after and each.after.clock_mhz == 1200.0]
    assert any(
        f"{len(odd)} of 8 passes ran at 1200 to 1200 MHz" in note for note in map(note_text, found.notes)
    ) == bool(odd)


@pytest.mark.parametrize(
    ("kind", "mhz"), [("cpu", [1980.0, 1200.0]), ("cuda", [1980.0]), ("cuda", [1980.0, 1975.0])]
)
def test_nothing_is_run_again_where_the_clock_is_the_same_or_not_that_of_the_work(
    kind: str, mhz: list[float]
) -> None:
    device = FakeDevice(kind=kind)
    found = together(
        device, {"a": _at_clocks(device, mhz * 10)}, timer=HostTimer(device.clock), budget=PLAIN
    )["a"]
    assert found.repeated_passes is None
    assert not any("MHz" in note for note in map(note_text, found.notes))


def test_a_device_that_tells_no_clock_has_none_compared() -> None:
    device = FakeDevice(kind="cuda", clock_mhz=None)
    found = together(
        device, {"a": Call(lambda: device.queue(5))}, timer=HostTimer(device.clock), budget=PLAIN
    )
    assert found["a"].repeated_passes is None


def test_a_rule_that_is_satisfied_ends_the_comparison_and_the_row_says_so(device: FakeDevice) -> None:
    options = TimingOptions(budget=Budget(blocks=8), stop=AtPrecision(0.02, least=3))
    calls = {"a": work(device, "a"), "b": work(device, "b")}
    found = time_together(calls, device, timer=HostTimer(device.clock), options=options)
    assert {len(block_samples(timing)) for timing in found.values()} == {3}
    assert note_text(found["a"].notes[-1]).startswith("3 of 8 blocks: known to 0 %")
