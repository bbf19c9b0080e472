"""Quantiles of Student's t, against tabulated values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.stats import t_quantile

# Upper quantiles of Student's t, ten digits, as printed tables and any statistics package give them.
TABLE = [
    (0.975, 1, 12.7062047362),
    (0.975, 2, 4.3026527297),
    (0.975, 3, 3.1824463053),
    (0.975, 4, 2.7764451052),
    (0.975, 5, 2.5705818356),
    (0.975, 9, 2.2621571628),
    (0.975, 10, 2.2281388520),
    (0.975, 19, 2.0930240544),
    (0.975, 30, 2.0422724563),
    (0.975, 120, 1.9799304051),
    (0.95, 1, 6.3137515147),
    (0.95, 9, 1.8331129327),
    (0.95, 30, 1.6972608866),
    (0.995, 2, 9.9248432009),
    (0.995, 9, 3.2498355416),
    (0.995, 30, 2.7499956536),
]


@pytest.mark.parametrize(("probability", "degrees", "expected"), TABLE)
def test_the_quantile_equals_the_tabulated_value(probability: float, degrees: int, expected: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(expected, abs=1e-6)


def test_many_degrees_approach_the_normal_quantile() -> None:
    assert t_quantile(0.975, 100_000) == pytest.approx(1.959963985, abs=1e-4)


@given(st.floats(0.501, 0.9999), st.integers(1, 60))
def test_the_distribution_is_symmetric(probability: float, degrees: int) -> None:
    assert t_quantile(1 - probability, degrees) == pytest.approx(-t_quantile(probability, degrees), rel=1e-9)


@given(st.floats(0.5, 0.9999), st.integers(1, 60))
def test_more_degrees_never_widen_the_interval(probability: float, degrees: int) -> None:
    assert t_quantile(probability, degrees + 1) <= t_quantile(probability, degrees) + 1e-12


def test_the_median_is_zero() -> None:
    assert t_quantile(0.5, 7) == 0


@pytest.mark.parametrize("probability", [0, 1, -0.1, 1.5, float("nan")])
def test_a_probability_outside_its_range_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        t_quantile(probability, 9)


@pytest.mark.parametrize("degrees", [0, -1, 2.5, True])
def test_degrees_that_are_no_whole_number_above_zero_are_refused(degrees: int) -> None:
    with pytest.raises(ValueError, match="whole number of at least 1"):
        t_quantile(0.975, degrees)
