"""What timers read of known calls, on a clock that is told how long each one takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmark.calibration import instruments
from kernelmark.calibration.instruments import Plan, Reading, Spin, read_instruments
from kernelmark.device import Device, FakeDevice
from kernelmark.errors import EmptyIterationError, RecordsLostError, UnavailableError
from kernelmark.timing import Budget
from kernelmark.timing.timer import Call, Timer
from kernelmark.timing.timers import TimerEntry
from kernelmark.timing.timers.host import HostTimer

SMALL = Budget(warmup_ms=0, sample_ms=0.001, min_count=2, max_count=2, blocks=1)
HOST = TimerEntry("host", "x:y", "any device", "the clock")


def readings(
    monkeypatch: pytest.MonkeyPatch, *, spin_ns: int = 1_000_000, rate: float = 1e12, tick_ns: int = 60
) -> dict[str, Reading]:
    """Read with a host timer on a fake clock on which a spin takes ``spin_ns``."""
    device = FakeDevice()
    device.clock.tick_ns = tick_ns
    made = Spin(lambda: device.clock.advance(spin_ns - tick_ns), 1_000_000, "the test")
    monkeypatch.setattr(instruments, "spin", lambda device, wanted: made)
    found = read_instruments(
        device,
        Plan(SMALL, 1 << 20, rate),
        entries=[HOST],
        open_=lambda name, device: HostTimer(device.clock),  # type: ignore[attr-defined]
    )
    return {each.what: each for each in found}


def test_nothing_and_a_spin_read_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    found = readings(monkeypatch, rate=1e30)
    assert (found["nothing"].read_ns, found["nothing"].key) == (60, "host_nothing_ns")
    assert (found["a spin"].read_ns, found["a spin"].expected_ns) == (1_000_000, 1_000_000)
    assert not any(each.doubtful for each in found.values())


def test_an_empty_call_that_takes_long_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    assert readings(monkeypatch, tick_ns=2_001)["nothing"].doubtful
    assert not readings(monkeypatch, tick_ns=2_000)["nothing"].doubtful


@pytest.mark.parametrize(("spin_ns", "doubtful"), [(1_049_000, False), (1_060_000, True), (940_000, True)])
def test_a_spin_that_is_read_too_long_or_too_short_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch, spin_ns: int, doubtful: bool
) -> None:
    assert readings(monkeypatch, spin_ns=spin_ns)["a spin"].doubtful is doubtful


def test_a_copy_faster_than_the_memory_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    found = readings(monkeypatch, rate=1e9)  # 1 MiB at 1 GB/s takes a millisecond, and 60 ns are read
    assert found["a copy that moves 1.00 MiB"].doubtful
    assert found["a copy that moves 512 KiB"].expected_ns == pytest.approx(524_288)
    assert "faster than the best rate" in found["a copy that moves 1.00 MiB"].note


class Failing(HostTimer):
    """Raises when opened, or for a call without work."""

    def __init__(self, failure: Exception, *, only_empty: bool = False) -> None:
        super().__init__()
        self.failure, self.only_empty = failure, only_empty

    def open(self, device: Device) -> None:
        if not self.only_empty:
            raise self.failure
        super().open(device)

    def collect(self, call: Call, prepare: Callable[[], object], count: int) -> tuple[list[int], list[int]]:
        if call.run is instruments._do_nothing:
            raise self.failure
        return super().collect(call, prepare, count)


@pytest.mark.parametrize(
    ("failure", "what", "doubtful"),
    [
        (UnavailableError("cupti is not installed"), "not usable here", False),
        (RecordsLostError("7 records were lost"), "no reading", True),
    ],
)
def test_a_timer_that_cannot_be_used_is_no_doubt_and_one_that_cannot_vouch_is(
    failure: Exception, what: str, doubtful: bool
) -> None:
    (found,) = read_instruments(
        FakeDevice(), Plan(SMALL, 1024, 1e9), entries=[HOST], open_=lambda name, device: Failing(failure)
    )
    assert (found.what, found.note, found.doubtful) == (what, str(failure), doubtful)


def test_a_timer_may_refuse_a_call_without_work() -> None:
    def open_(name: str, device: Device) -> Timer:
        return Failing(EmptyIterationError("no work"), only_empty=True)

    found = read_instruments(FakeDevice(), Plan(SMALL, 1024, 1e30), entries=[HOST], open_=open_)
    assert found[0].note == "refuses a call without work, as it should"
    assert found[0].read_ns is None
    assert len(found) == 4
