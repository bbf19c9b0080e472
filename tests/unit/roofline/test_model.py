"""The roofline is arithmetic: the speed of light, the share of it, the bound, and what is impossible."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import UsageError
from kernelmark.records import Bound, Cache, DeviceRecord, RooflineReading
from kernelmark.report.notes import note_text
from kernelmark.roofline import Calibration, Figure, Profile, Rate, Work, read_roofline

# 1 TB/s and 10 TFLOP/s: a megabyte takes 1,000 ns, ten million operations take 1,000 ns.
PROFILE = Profile(
    name="Example",
    kind="cuda",
    match=("Example *",),
    bandwidth=Figure(1e12, "the memory page"),
    flops={Rate.FLOAT32: Figure(1e13, "the arithmetic page")},
)
MEASURED = Profile(
    "This CPU", "cpu", ("This CPU",), Figure(1e12, "best copy rate"), {}, Calibration("2026-01-02", {})
)
counts = st.integers(0, 10**15)
times = st.floats(1, 1e12)


def read(
    flops: int,
    size: int,
    busy_ns: float,
    *,
    compute: str = "float32",
    profile: Profile | None = PROFILE,
    cache: Cache = Cache.COLD,
    llc: int | None = None,
) -> RooflineReading:
    work = Work(flops, size, compute)
    return read_roofline(work, busy_ns, profile, cache=cache, last_level_cache_bytes=llc)


@pytest.mark.spec("T37")
def test_a_call_that_moves_more_than_it_computes_is_bound_by_memory() -> None:
    reading = read(flops=10**6, size=10**6, busy_ns=2_000)
    assert reading.bound is Bound.MEMORY
    assert reading.speed_of_light_ns == pytest.approx(1_000)
    assert reading.percent_of_speed_of_light == pytest.approx(50)
    assert reading.bandwidth_tbs == pytest.approx(0.5)
    assert reading.tflops == pytest.approx(0.5)
    assert reading.profile == "Example"
    assert reading.profile_source == "the memory page; the arithmetic page"
    assert reading.anomaly is None
    assert reading.note is None


def test_a_call_that_computes_more_than_it_moves_is_bound_by_arithmetic() -> None:
    reading = read(flops=4 * 10**7, size=10**6, busy_ns=5_000)
    assert reading.bound is Bound.COMPUTE
    assert reading.speed_of_light_ns == pytest.approx(4_000)
    assert reading.percent_of_speed_of_light == pytest.approx(80)


@given(st.integers(1, 10**15), st.integers(1, 10**15), times)
def test_the_speed_of_light_is_the_slower_of_the_two(flops: int, size: int, busy_ns: float) -> None:
    reading = read(flops, size, busy_ns)
    memory_ns, compute_ns = size / 1e12 * 1e9, flops / 1e13 * 1e9
    assert reading.speed_of_light_ns == pytest.approx(max(memory_ns, compute_ns))
    assert reading.bound is (Bound.MEMORY if memory_ns >= compute_ns else Bound.COMPUTE)
    assert reading.percent_of_speed_of_light == pytest.approx(
        100 * max(memory_ns, compute_ns) / busy_ns, rel=1e-9
    )


@given(st.integers(1, 10**12), times)
def test_an_anomaly_is_told_above_105_percent_and_never_clamped(size: int, busy_ns: float) -> None:
    reading = read(0, size, busy_ns)
    assert reading.percent_of_speed_of_light == pytest.approx(100 * (size / 1e12 * 1e9) / busy_ns)
    assert (reading.anomaly is not None) == (reading.percent_of_speed_of_light > 105)


def test_at_105_percent_and_a_little_less_nothing_is_wrong() -> None:
    assert read(0, 1_049_999, 1_000).anomaly is None
    assert read(0, 1_051_000, 1_000).anomaly is not None


def test_an_anomaly_says_the_numbers_the_source_and_the_causes() -> None:
    text = note_text(read(0, 2 * 10**6, 1_000).anomaly)
    assert "200.0 % of the memory ceiling: 2.000 TB/s against 1.000 TB/s (the memory page)" in text
    assert "wrong byte or flop count, a call that skipped work, or a warm cache" in text
    assert "10.00 TFLOP/s" in note_text(read(2 * 10**7, 0, 1_000).anomaly)


def test_an_anomaly_against_a_measured_ceiling_says_that_it_was_measured() -> None:
    text = note_text(read(0, 2 * 10**6, 1_000, profile=MEASURED).anomaly)
    assert "2026-01-02" in text
    assert "calibrate again" in text
    assert "calibrate" not in note_text(read(0, 2 * 10**6, 1_000).anomaly)


@pytest.mark.spec("T37")
def test_without_a_profile_the_share_is_blank_and_the_throughput_is_there() -> None:
    reading = read(10**6, 10**6, 1_000, profile=None)
    assert reading.tflops == pytest.approx(1)
    assert reading.bandwidth_tbs == pytest.approx(1)
    assert reading.profile is None
    assert reading.profile_source is None
    assert reading.speed_of_light_ns is None
    assert reading.percent_of_speed_of_light is None
    assert reading.bound is None
    assert reading.anomaly is None
    assert note_text(reading.note) == "no hardware profile for this device"


@pytest.mark.spec("T37")
def test_a_dtype_without_a_rate_leaves_the_share_blank_and_says_so() -> None:
    reading = read(10**6, 10**6, 2_000, compute="float16")
    assert reading.percent_of_speed_of_light is None
    assert reading.bound is None
    assert note_text(reading.note) == "profile 'Example' has no float16 rate"


def test_the_memory_ceiling_holds_even_where_the_dtype_has_no_rate() -> None:
    reading = read(10**6, 3 * 10**6, 1_000, compute="int64")
    assert reading.percent_of_speed_of_light is None
    assert "300.0 % of the memory ceiling" in note_text(reading.anomaly)


def test_a_call_without_arithmetic_needs_no_rate() -> None:
    reading = read(0, 10**6, 2_000, compute="bool")
    assert reading.percent_of_speed_of_light == pytest.approx(50)
    assert reading.tflops == 0


def test_a_call_without_bytes_is_bound_by_arithmetic() -> None:
    reading = read(10**7, 0, 2_000)
    assert (reading.bound, reading.percent_of_speed_of_light) == (Bound.COMPUTE, pytest.approx(50))
    assert reading.bandwidth_tbs == 0


def test_a_call_with_neither_has_no_share() -> None:
    reading = read(0, 0, 2_000)
    assert reading.percent_of_speed_of_light is None
    assert note_text(reading.note) == "the call has neither bytes nor flops"


def test_warm_data_that_the_last_level_cache_holds_are_not_bound_by_memory() -> None:
    reading = read(1, 10**6, 100, cache=Cache.WARM, llc=10**6)
    assert reading.percent_of_speed_of_light is None
    assert reading.anomaly is None
    assert "warm" in note_text(reading.note)
    assert "977 KiB" in note_text(reading.note)


@pytest.mark.parametrize(("cache", "llc"), [(Cache.COLD, 10**9), (Cache.WARM, 10**6 - 1), (Cache.WARM, None)])
def test_data_that_come_from_memory_are_bound_by_it(cache: Cache, llc: int | None) -> None:
    reading = read(1, 10**6, 2_000, cache=cache, llc=llc)
    assert reading.bound is Bound.MEMORY
    assert reading.percent_of_speed_of_light == pytest.approx(50)


def test_warm_data_leave_a_bound_by_arithmetic_as_it_is() -> None:
    reading = read(2 * 10**7, 10**6, 4_000, cache=Cache.WARM, llc=10**9)
    assert (reading.bound, reading.percent_of_speed_of_light) == (Bound.COMPUTE, pytest.approx(50))


def test_a_device_that_was_never_busy_is_an_anomaly_and_no_crash() -> None:
    reading = read(10**6, 10**6, 0)
    assert math.isinf(reading.tflops)
    assert reading.anomaly is not None
    assert RooflineReading.model_validate_json(reading.model_dump_json()) == reading


@given(counts, counts, times, st.sampled_from(Cache), st.one_of(st.none(), counts))
def test_a_blank_share_always_says_why(
    flops: int, size: int, busy_ns: float, cache: Cache, llc: int | None
) -> None:
    reading = read(flops, size, busy_ns, cache=cache, llc=llc)
    assert (reading.percent_of_speed_of_light is None) == (reading.note is not None)
    assert (reading.percent_of_speed_of_light is None) == (reading.bound is None)
    assert RooflineReading.model_validate_json(reading.model_dump_json()) == reading


@pytest.mark.parametrize(
    ("compute", "rate"),
    [
        ("float32", Rate.FLOAT32),
        ("tf32", Rate.TF32),
        ("float8_e4m3fn", Rate.FLOAT8),
        ("float8_e5m2fnuz", Rate.FLOAT8),
        ("uint8", Rate.INT8),
        ("complex64", Rate.FLOAT32),
        ("complex128", Rate.FLOAT64),
        ("int64", None),
        ("bool", None),
        ("float8", Rate.FLOAT8),
    ],
)
def test_a_dtype_counts_at_the_rate_of_its_arithmetic(compute: str, rate: Rate | None) -> None:
    assert Rate.of(compute) is rate


def test_whole_counts_of_any_number_type_are_taken_as_integers() -> None:
    assert Work(np.int64(3), 4.0) == Work(3, 4)  # type: ignore[arg-type]
    assert type(Work(np.int64(3), 4.0).bytes) is int  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [-1, 1.5, math.nan, math.inf, True, "3", None])
def test_a_count_that_counts_nothing_is_refused_by_name(count: object) -> None:
    with pytest.raises(UsageError, match="flops is"):
        Work(count, 1)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="bytes is"):
        Work(1, count)  # type: ignore[arg-type]


@pytest.mark.parametrize("compute", ["", None, 3])
def test_work_names_a_dtype(compute: object) -> None:
    with pytest.raises(UsageError, match="compute is"):
        Work(1, 1, compute)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "name", "matches"),
    [
        ("cuda", "Example X", True),
        ("cuda", "example X", False),
        ("cuda", "An Example X", False),
        ("cpu", "Example X", False),
    ],
)
def test_a_profile_is_for_devices_of_its_kind_and_name(kind: str, name: str, matches: bool) -> None:
    assert PROFILE.matches(DeviceRecord(kind=kind, name=name)) is matches
