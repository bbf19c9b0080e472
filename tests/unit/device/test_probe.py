"""The probe shows whether cold is cold, by the ratio of two reads of the same data."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.device import CpuDevice, FakeDevice, flush_verdict, measure_probe, probe_verdict
from kernelmark.device import probe as subject
from kernelmark.device.fake import FakeClock
from kernelmark.device.probe import probe_bytes
from kernelmark.records import Cache as State
from kernelmark.records import DeviceRecord, ProbeReading

MIB = 1 << 20


@dataclass
class Cache:
    """A cache that a flush empties: the first read after it takes longer than the next ones."""

    clock: FakeClock
    warm: bool = False
    flushes: int = 0
    reads: list[bool] = field(default_factory=list)

    def flush(self) -> None:
        self.flushes += 1
        self.warm = False
        self.clock.advance(1_000_000)

    def read(self) -> None:
        self.reads.append(self.warm)
        self.clock.advance(100 if self.warm else 1_500)
        self.warm = True


def reading(cold: float, warm: float) -> ProbeReading:
    return ProbeReading(size_bytes=256 << 10, warm_ns=warm, cold_ns=cold, flush_bytes=MIB, flush_ns=1e6)


@pytest.mark.spec("T29")
def test_after_the_flush_a_read_on_this_cpu_is_cold() -> None:
    found = measure_probe(CpuDevice())
    # 24 to 39 on a server, less on a laptop whose caches are small beside a call's own cost.
    assert found.ratio > 1.5, found
    assert flush_verdict(found) == ""


@pytest.mark.spec("T29")
def test_a_flush_that_evicts_nothing_is_found_out_on_this_cpu() -> None:
    found = measure_probe(FakeDevice())  # its flush touches no memory
    assert found.ratio < 1.3, found
    assert "evicts nothing" in flush_verdict(found)


@pytest.mark.spec("T29")
def test_with_warm_caches_a_second_read_on_this_cpu_is_faster_and_two_flushes_suffice() -> None:
    device = CpuDevice()
    found = measure_probe(device, cache=State.WARM)
    assert found.ratio > 1.5, found
    assert probe_verdict(found, State.WARM) == ""
    fake = FakeDevice()
    nothing_to_see = measure_probe(fake, cache=State.WARM)
    assert fake.log.count("flush") == 3  # the first round loads code
    assert "nothing shows that warm is warm" in probe_verdict(nothing_to_see, State.WARM)


def test_a_round_is_flush_then_a_cold_read_then_a_warm_one() -> None:
    cache = Cache(FakeClock())
    rounds = subject._by_host(cache.read, cache.flush, cache.clock, 3)
    assert [tuple(one) for one in rounds] == [(1_000_000, 1_500, 100)] * 3
    assert cache.flushes == 4  # the first round loads code and is not read
    assert cache.reads == [False, True, True] * 4


def test_a_clock_that_is_given_times_any_device() -> None:
    device = FakeDevice(kind="cuda", flush_ns=5_000)
    found = measure_probe(device, clock=device.clock, rounds=3)
    assert found.flush_ns == 5_000
    assert found.flush_bytes == device.flusher().size_bytes


@given(st.floats(1, 1e6), st.floats(1, 1e6))
def test_the_verdict_is_silent_exactly_where_cold_is_cold(cold: float, warm: float) -> None:
    found = reading(cold, warm)
    assert (flush_verdict(found) == "") == (found.ratio >= 1.3)
    assert all((probe_verdict(found, cache) == "") == (found.ratio >= 1.3) for cache in State)


def test_the_verdict_says_the_numbers() -> None:
    text = flush_verdict(reading(cold=1_050, warm=1_000))
    assert "1.05" in text
    assert "1.050 µs" in text
    assert "256 KiB" in text
    assert "1.3" in text


def record(kind: str, **sizes: int) -> DeviceRecord:
    last = list(sizes.values())[-1] if sizes else None
    return DeviceRecord(kind=kind, name="x", cache_bytes=sizes, last_level_cache_bytes=last)


@pytest.mark.parametrize(
    ("device", "size"),
    [
        (record("cpu", L1d=48 << 10, L2=2 * MIB, L3=480 * MIB), 128 << 10),
        (record("cpu", L1d=32 << 10, L2=256 << 10, L3=6 * MIB), 64 << 10),
        (record("cpu", L1d=64 << 10, L2=4 * MIB), 64 << 10),
        (record("cpu"), 64 << 10),
        (record("cuda", L2=60 * MIB), 4 * MIB),
        (record("cuda", L2=4 * MIB), MIB),
        (record("xpu"), 4 * MIB),
    ],
    ids=str,
)
def test_the_probe_fits_into_the_cache_nearest_to_the_work(device: DeviceRecord, size: int) -> None:
    assert probe_bytes(device) == size
