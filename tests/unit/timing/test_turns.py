"""Rounds outermost, on a device whose clock moves only when told."""

from __future__ import annotations

import gc
import itertools

import pytest

from kernelmark.device import FakeDevice
from kernelmark.errors import TimingError, UsageError
from kernelmark.records import PassRecord, Timing
from kernelmark.report.notes import note_text
from kernelmark.timing import (
    BudgetedCounts,
    Call,
    FixedCounts,
    TimingOptions,
    Turns,
    loop,
    time_together,
)
from kernelmark.timing.timers.host import HostTimer

MS = 1_000_000
BUDGET = BudgetedCounts(warmup_ms=2, repeat_ms=4)
"""Calls of 1 ms without a flush: two warm-ups, four samples."""


class ClosingTimer(HostTimer):
    """The real host timer, which also says when it is opened and closed."""

    def __init__(self, device: FakeDevice) -> None:
        super().__init__(device.clock)
        self.log = device.log

    def open(self, device: FakeDevice) -> None:
        super().open(device)
        self.log.append("open")

    def close(self) -> None:
        self.log.append("close")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    device = FakeDevice()
    monkeypatch.setattr(loop, "_sleep", lambda seconds: device.log.append(f"sleep {seconds}"))
    return device


def work(device: FakeDevice, name: str, ns: int = MS, *, reset: bool = False) -> Call:
    def run() -> None:
        device.log.append(name)
        device.clock.advance(ns)

    return Call(run, (), (lambda: device.log.append(f"reset {name}")) if reset else None)


def in_rounds(device: FakeDevice, calls: dict[str, Call], after_pass=None, **options):
    options = {"counts": BUDGET, "cooldown_s": 0, **options}
    protocol = TimingOptions(count_copies=True, turns=Turns(**options))
    return time_together(calls, device, timer=ClosingTimer(device), options=protocol, after_pass=after_pass)


def counts(found: Timing) -> list[tuple[float | None, int, int]]:
    return [(each.estimate_ns, each.lead_in or 0, len(each.latency_ns)) for each in found.passes]


@pytest.mark.spec("X3", "X4")
def test_a_turn_is_one_call_and_a_wait_then_the_estimate_then_warm_ups_then_samples(
    device: FakeDevice,
) -> None:
    in_rounds(device, {"a": work(device, "a")})
    cold = ["flush", "a"]
    assert device.log == [
        *("open", *["flush"] * 5, "a", "synchronize"),
        *(cold * 5),
        *("synchronize", "telemetry", "a", "a", "synchronize"),
        *(cold * 4),
        *("telemetry", "close"),
    ]


@pytest.mark.spec("X4", "X16")
def test_the_flush_and_the_reset_precede_every_sample_and_are_in_no_reading(device: FakeDevice) -> None:
    device.flush_ns = 5 * MS
    found = in_rounds(device, {"a": work(device, "a", reset=True)}, counts=BudgetedCounts(0, 24))["a"]
    (samples,) = (each.latency_ns for each in found.passes)
    assert samples == (MS,) * 4
    last = device.log.index("close") - 1
    assert device.log[last - 12 : last] == ["reset a", "flush", "a"] * 4


@pytest.mark.spec("X3")
@pytest.mark.parametrize(
    ("flush_in_estimate", "estimate_ns", "warmup", "samples"), [(True, 4 * MS, 2, 5), (False, MS, 8, 20)]
)
def test_counts_are_budgets_over_the_estimate_with_or_without_the_flush(
    device: FakeDevice, flush_in_estimate: bool, estimate_ns: int, warmup: int, samples: int
) -> None:
    device.flush_ns = 3 * MS
    wanted = BudgetedCounts(warmup_ms=8, repeat_ms=20, flush_in_estimate=flush_in_estimate)
    found = in_rounds(device, {"a": work(device, "a")}, counts=wanted)["a"]
    assert counts(found) == [(estimate_ns, warmup, samples)]


@pytest.mark.spec("X3")
def test_a_call_larger_than_its_budgets_runs_once_for_each_and_the_row_says_so(device: FakeDevice) -> None:
    found = in_rounds(device, {"a": work(device, "a", 900 * MS)})["a"]
    assert counts(found) == [(900 * MS, 1, 1)]
    assert tuple(map(note_text, found.notes)) == (
        "only 1 samples in a round, since one call takes 900 ms with what precedes it; a larger repeat budget gives"
        " more",
    )


@pytest.mark.spec("X3")
def test_an_estimate_of_nothing_does_not_divide(device: FakeDevice) -> None:
    calls = itertools.count()
    of_a_round = 1 + 5 + 2 * loop.COUNT_WITHOUT_ESTIMATE

    def run() -> None:  # the first one and those that are estimated take no time
        device.clock.advance(next(calls) % of_a_round > 5)

    found = in_rounds(device, {"a": Call(run)}, rounds=2)["a"]
    assert [samples for *_, samples in counts(found)] == [loop.COUNT_WITHOUT_ESTIMATE] * 2
    assert "1000 calls in 2 of 2 rounds: the clock did not move" in note_text(found.notes[0])


@pytest.mark.spec("X6")
def test_a_round_without_time_is_an_error(device: FakeDevice) -> None:
    with pytest.raises(TimingError, match=r"'a' read 0\.0 µs in one round, which is no time") as caught:
        in_rounds(device, {"a": work(device, "a", 0)})
    assert caught.value.__notes__ == ["while 'a' was timed, in round 1 of 1"]


def test_an_instrument_without_warm_up_gets_none(device: FakeDevice) -> None:
    found = in_rounds(device, {"a": work(device, "a")}, counts=BudgetedCounts(None, 4))["a"]
    assert counts(found) == [(MS, 0, 4)]
    assert device.log.count("a") == 1 + 5 + 4


@pytest.mark.spec("X9")
def test_rounds_are_outermost_and_each_turn_is_preceded_by_the_pause(device: FakeDevice) -> None:
    calls = {"a": work(device, "a"), "b": work(device, "b")}
    found = in_rounds(device, calls, rounds=3, cooldown_s=0.5)
    turns = [device.log[i + 1] for i, event in enumerate(device.log) if event == "sleep 0.5"]
    assert turns == ["a", "b"] * 3
    assert [[each.block for each in one.passes] for one in found.values()] == [[0, 1, 2]] * 2
    assert [[each.position for each in one.passes] for one in found.values()] == [[0] * 3, [1] * 3]


@pytest.mark.spec("X9")
def test_no_pause_never_sleeps(device: FakeDevice) -> None:
    in_rounds(device, {"a": work(device, "a")}, rounds=2, cooldown_s=0)
    assert not [event for event in device.log if event.startswith("sleep")]


@pytest.mark.spec("X13")
def test_fixed_counts_estimate_nothing_and_prepare_warm_ups_like_samples(device: FakeDevice) -> None:
    def before(reset):
        return lambda: device.log.append("before")

    found = in_rounds(device, {"a": work(device, "a")}, counts=FixedCounts(2, 3), before=before)["a"]
    assert [event for event in device.log if event in ("before", "a", "flush")] == ["before", "a"] * 5
    assert counts(found) == [(None, 2, 3)]
    assert found.warmup_count == 2


@pytest.mark.spec("X7")
def test_an_error_names_the_call_closes_the_timer_and_puts_collection_back(device: FakeDevice) -> None:
    def fails() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        in_rounds(device, {"a": work(device, "a"), "b": Call(fails)}, rounds=2)
    assert caught.value.__notes__ == ["while 'b' was timed, in round 1 of 2"]
    assert device.log[-1] == "close"
    assert gc.isenabled()
    in_rounds(device, {"a": work(device, "a")})  # the next one works


def test_each_pass_is_handed_on_with_its_name(device: FakeDevice) -> None:
    seen: list[tuple[str, int]] = []

    def after(name: str, record: PassRecord, result: object) -> None:
        seen.append((name, record.block))

    in_rounds(device, {"a": work(device, "a"), "b": work(device, "b")}, after, rounds=2)
    assert seen == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_nothing_to_time_is_refused_before_the_timer_opens(device: FakeDevice) -> None:
    with pytest.raises(UsageError, match="nothing to time"):
        in_rounds(device, {})
    assert not device.log
