"""The record types: a row cannot say more than its check allows."""

from __future__ import annotations

from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kernelmark.records import (
    Cache,
    Check,
    PassRecord,
    ProbeReading,
    Ratio,
    Role,
    RooflineReading,
    Row,
    Statistics,
    Timing,
)

TIMES = Statistics(samples=1, median_ns=5, mean_ns=5, min_ns=5, max_ns=5)
TIMING = Timing(timer="fake", cache=Cache.COLD, device_busy=TIMES, latency=TIMES)
RATIO = Ratio(value=1.2, blocks=1)
ROOFLINE = RooflineReading(flops=1, bytes=1, tflops=1.0, bandwidth_tbs=1.0)


def row(check: Check = Check.VERIFIED, role: Role = Role.BASELINE, **more: object) -> Row:
    return Row(case="c", implementation="i", role=role, check=check, **{"note": "because", **more})


@pytest.mark.spec("T20", "T23", "T36")
@pytest.mark.parametrize("check", [each for each in Check if not each.comparable])
def test_a_row_that_may_not_be_compared_cannot_hold_a_ratio(check: Check):
    with pytest.raises(ValidationError, match=f"check is '{check.value}' cannot hold a"):
        row(check, timing=TIMING, ratio=RATIO)


@pytest.mark.spec("T19")
@pytest.mark.parametrize("check", [Check.VERIFIED, Check.PARTIAL, Check.CUSTOM])
def test_a_row_that_was_checked_keeps_its_ratio(check: Check):
    assert row(check, timing=TIMING, ratio=RATIO).ratio == RATIO


@pytest.mark.parametrize("check", [Check.FAILED, Check.UNAVAILABLE])
def test_a_failed_or_unavailable_row_cannot_hold_a_time(check: Check):
    with pytest.raises(ValidationError, match="cannot hold a time"):
        row(check, timing=TIMING)


@pytest.mark.spec("T14", "T20", "T23")
@pytest.mark.parametrize("check", [each for each in Check if not each.comparable])
def test_a_row_that_was_not_compared_must_say_why(check: Check):
    with pytest.raises(ValidationError, match="must say why"):
        row(check, note="")


def test_our_own_row_holds_no_ratio_against_itself():
    with pytest.raises(ValidationError, match="belongs to a baseline's row"):
        row(role=Role.OURS, timing=TIMING, ratio=RATIO)


@pytest.mark.parametrize("extra", [{"ratio": RATIO}, {"roofline": ROOFLINE}])
def test_nothing_that_needs_a_time_stands_without_one(extra: dict):
    with pytest.raises(ValidationError, match="needs a time"):
        row(**extra)


@pytest.mark.parametrize(("low", "high"), [(None, 1.3), (1.1, None)])
def test_an_interval_has_two_ends_or_none(low: float | None, high: float | None):
    with pytest.raises(ValidationError, match="two ends or none"):
        Ratio(value=1.2, low=low, high=high, blocks=2)


@pytest.mark.parametrize(("low", "high"), [(1.21, 1.3), (1.1, 1.19), (1.3, 1.1)])
def test_a_ratio_lies_inside_its_interval(low: float, high: float):
    with pytest.raises(ValidationError, match="outside its own interval"):
        Ratio(value=1.2, low=low, high=high, blocks=2)


@pytest.mark.parametrize("value", [0, -1.0, float("nan")])
def test_a_ratio_is_above_zero(value: float):
    with pytest.raises(ValidationError, match="greater than 0"):
        Ratio(value=value, blocks=1)


@pytest.mark.parametrize(
    "column", ["device_busy_ns", "n_kernels", "n_copies", "n_memsets", "uncounted_copy_ns"]
)
def test_the_columns_of_a_pass_have_one_entry_per_sample(column: str):
    facts: dict = {"block": 0, "position": 0, "latency_ns": (1, 2), "device_busy_ns": (1, 2)}
    with pytest.raises(ValidationError, match=f"{column} has 1 entries for 2 samples"):
        PassRecord(**{**facts, column: (1,)})


def test_a_record_cannot_be_changed_or_hold_what_it_does_not_name():
    with pytest.raises(ValidationError, match="frozen"):
        RATIO.value = 9.0  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        Ratio(value=1.0, blocks=1, speed=3)  # type: ignore[call-arg]


def test_a_probe_tells_cold_over_warm_and_copes_with_a_clock_that_read_nothing():
    facts: dict = {"size_bytes": 1, "flush_bytes": 1, "flush_ns": 1, "cold_ns": 30}
    assert ProbeReading(warm_ns=20, **facts).ratio == 1.5
    assert ProbeReading(warm_ns=0, **facts).ratio == float("inf")


class _Layout(StrEnum):
    ROWS = "rows"


def test_params_are_kept_as_they_will_be_read_back():
    made = row(
        params={
            "shape": (2, (3, 4)),
            "fill": float("-inf"),
            "layout": _Layout.ROWS,
            "on": True,
            "sizes": {1: None},
        }
    )
    assert made.params == {
        "shape": [2, [3, 4]],
        "fill": "-inf",
        "layout": "rows",
        "on": True,
        "sizes": {"1": None},
    }
    assert type(made.params["layout"]) is str
    assert type(made.params["on"]) is bool


def test_a_param_that_cannot_be_stored_is_named_with_its_type():
    with pytest.raises(ValidationError, match=r"params\.a\.b\[1\] is a object"):
        row(params={"a": {"b": [1, object()]}})


@given(st.dictionaries(st.text(), st.floats() | st.lists(st.integers()).map(tuple)))
def test_params_made_storable_once_stay_as_they_are(params: dict):
    once = row(params=params).params
    assert row(params=once).params == once


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (
            Ratio(value=1.131, low=1.059, high=1.208, blocks=10, verdict="faster"),
            "1.131 [1.059, 1.208] ours faster",
        ),
        (
            Ratio(value=0.5, low=0.4, high=0.6, blocks=10, verdict="slower"),
            "0.500 [0.400, 0.600] ours slower",
        ),
        (Ratio(value=1, blocks=1), "1.000 no interval"),
    ],
)
def test_a_ratio_prints_as_in_a_report(ratio: Ratio, text: str):
    assert str(ratio) == text
