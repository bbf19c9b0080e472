"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.units import (
    TimeScale,
    format_bytes,
    format_percent,
    format_rate,
    format_ratio,
    format_time,
    significant,
)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, ""),
        (0, "0 ns"),
        (960, "960.0 ns"),
        (999.99, "1000.0 ns"),
        (1_000, "1.000 µs"),
        (54_321, "54.32 µs"),
        (1_234_567, "1.235 ms"),
        (90e9, "90.00 s"),
        (-1_500, "-1.500 µs"),
        (math.inf, "inf s"),
    ],
)
def test_a_time_has_four_digits_and_the_unit_that_suits_it(ns: float | None, text: str):
    assert format_time(ns) == text


def test_times_in_one_table_share_a_unit_and_their_decimals():
    times = [812_300, 1_204_000, 995_123.4, 41]
    scale = TimeScale.fit(times[:3])
    assert [scale.format(ns) for ns in times] == ["812.3 µs", "1204.0 µs", "995.1 µs", "0.0 µs"]
    assert scale.format(None) == ""


@pytest.mark.parametrize("nothing", [[], [0], [0, math.inf]])
def test_a_scale_of_no_times_is_nanoseconds(nothing: list[float]):
    assert TimeScale.fit(nothing).unit == "ns"


@given(st.lists(st.floats(1e-3, 1e15), min_size=1))
def test_no_time_in_a_scale_loses_its_first_four_digits(times: list[float]):
    scale = TimeScale.fit(times)
    for ns in times:
        shown = float(scale.format(ns).split()[0]) * scale.ns_per_unit
        assert shown == pytest.approx(ns, rel=6e-4)


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, ""), (0, "0 B"), (1023, "1023 B"), (2**20, "1.00 MiB"), (62_914_560, "60.0 MiB")],
)
def test_a_size_has_a_binary_unit(size: int | None, text: str):
    assert format_bytes(size) == text


def test_a_ratio_shows_its_interval_only_if_it_has_one():
    assert format_ratio(None) == ""
    assert format_ratio(1.2) == "1.200"
    assert format_ratio(1.2, 1.1, None) == "1.200"
    assert format_ratio(1.23456, 1.2, 1.3) == "1.235 [1.200, 1.300]"


def test_a_share_is_shown_in_percent():
    assert format_percent(None) == ""
    assert format_rate(None, "B/s") == ""
    assert format_rate(4.8e12, "B/s") == "4.800 TB/s"
    assert format_rate(347.2e9, "FLOP/s") == "347.2 GFLOP/s"
    assert format_rate(0.0, "B/s") == "0 B/s"
    assert format_percent(0.1234) == "12.3 %"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234.5, "1234"), (0.0012345, "0.001234"), (1e-9, "1.000e-09"), (math.nan, "nan")],
)
def test_ordinary_numbers_have_no_exponent(value: float, text: str):
    assert significant(value) == text
