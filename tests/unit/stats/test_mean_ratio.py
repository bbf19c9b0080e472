"""The geometric mean of several ratios, and the interval that their own intervals give it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.records import Ratio
from kernelmark.stats import mean_ratio, paired_ratio, t_quantile


def ratio_of(value: float, error: float, blocks: int = 10, confidence: float = 0.95) -> Ratio:
    """A ratio whose logarithm has this standard error."""
    reach = t_quantile((1 + confidence) / 2, blocks - 1) * error
    return Ratio(
        value=value,
        low=value * math.exp(-reach),
        high=value * math.exp(reach),
        confidence=confidence,
        blocks=blocks,
    )


RATIOS = st.lists(
    st.builds(
        ratio_of,
        st.floats(0.01, 100),
        st.floats(1e-4, 0.2),
        st.integers(2, 12),
        st.sampled_from([0.8, 0.95, 0.99]),
    ),
    min_size=1,
    max_size=8,
)


def test_equal_errors_shrink_with_the_root_of_the_number_and_add_their_degrees() -> None:
    found = mean_ratio([ratio_of(2.0, 0.01), ratio_of(0.5, 0.01), ratio_of(1.0, 0.01), ratio_of(1.0, 0.01)])
    reach = t_quantile(0.975, 36) * 0.01 / 2
    assert found.value == pytest.approx(1.0)
    assert found.low == pytest.approx(math.exp(-reach))
    assert found.high == pytest.approx(math.exp(reach))
    assert (found.count, found.verdict) == (4, "undecided")


def test_one_large_error_rules_the_interval_with_its_own_degrees() -> None:
    found = mean_ratio([ratio_of(1.0, 0.1, blocks=5), *[ratio_of(1.0, 1e-6)] * 9])
    assert found.high is not None
    assert math.log(found.high) == pytest.approx(t_quantile(0.975, 4) * 0.1 / 10, rel=1e-6)


def test_the_mean_of_one_ratio_is_that_ratio() -> None:
    one = paired_ratio([[100.0]] * 4, [[101.0], [102.0], [103.0], [102.0]])
    found = mean_ratio([one])
    assert one.low is not None
    assert one.high is not None
    assert (found.value, found.low, found.high) == pytest.approx((one.value, one.low, one.high))
    assert found.verdict == one.verdict == "faster"


def test_a_ratio_without_an_interval_leaves_the_mean_without_one() -> None:
    found = mean_ratio([ratio_of(4.0, 0.01), Ratio(value=1.0, blocks=1)])
    assert found.value == pytest.approx(2.0)
    assert (found.low, found.high, found.verdict) == (None, None, "no interval")


def test_intervals_of_no_width_give_one_of_no_width() -> None:
    exact = Ratio(value=2.0, low=2.0, high=2.0, blocks=3)
    found = mean_ratio([exact, exact])
    assert found.value == found.low == found.high == pytest.approx(2.0)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 2.0])
def test_a_confidence_that_is_none_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="strictly between"):
        mean_ratio([ratio_of(1.0, 0.1)], confidence=confidence)


def test_no_ratio_has_no_mean() -> None:
    with pytest.raises(ValueError, match="no ratio"):
        mean_ratio([])


@given(RATIOS, st.randoms())
def test_the_order_does_not_matter_and_the_mean_lies_between_the_ratios(
    ratios: list[Ratio], random: object
) -> None:
    found = mean_ratio(ratios)
    shuffled = list(ratios)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    other = mean_ratio(shuffled)
    assert other.value == pytest.approx(found.value)
    assert other.low == pytest.approx(found.low)
    assert min(r.value for r in ratios) * 0.999 <= found.value <= max(r.value for r in ratios) * 1.001
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value <= found.high


@given(RATIOS)
def test_the_other_side_of_every_ratio_gives_the_other_side_of_the_mean(ratios: list[Ratio]) -> None:
    def inverse(ratio: Ratio) -> Ratio:
        assert ratio.low is not None
        assert ratio.high is not None
        ends = {"value": 1 / ratio.value, "low": 1 / ratio.high, "high": 1 / ratio.low}
        return ratio.model_copy(update=ends)

    found, other = mean_ratio(ratios), mean_ratio([inverse(ratio) for ratio in ratios])
    assert found.low is not None
    assert found.high is not None
    assert other.value == pytest.approx(1 / found.value)
    assert other.low == pytest.approx(1 / found.high)
    assert other.high == pytest.approx(1 / found.low)


@given(RATIOS, st.integers(2, 5))
def test_the_same_again_keeps_the_mean_and_narrows_the_interval(ratios: list[Ratio], times: int) -> None:
    one, many = mean_ratio(ratios), mean_ratio(ratios * times)
    assert many.value == pytest.approx(one.value)
    assert one.high is not None
    assert many.high is not None
    assert math.log(many.high / many.value) < math.log(one.high / one.value)


@given(RATIOS, st.floats(0.5, 0.9), st.floats(0.01, 0.09))
def test_more_confidence_is_a_wider_interval(ratios: list[Ratio], confidence: float, more: float) -> None:
    narrow, wide = (mean_ratio(ratios, confidence=each) for each in (confidence, confidence + more))
    assert narrow.low is not None
    assert narrow.high is not None
    assert wide.low is not None
    assert wide.high is not None
    assert wide.low < narrow.low <= narrow.high < wide.high


def test_the_intervals_hold_the_mean_of_the_true_ratios_as_often_as_they_say() -> None:
    random = np.random.default_rng(20261129)
    true = np.array([0.3, 1.0, 1.5, 8.0, 0.9])
    spread = np.array([0.002, 0.01, 0.05, 0.01, 0.1])
    mean, held, trials = math.exp(np.log(true).mean()), 0, 1000
    for _ in range(trials):
        found = mean_ratio(
            [
                paired_ratio([[1.0]] * 10, [[ratio * math.exp(random.normal(0, width))] for _ in range(10)])
                for ratio, width in zip(true, spread, strict=True)
            ]
        )
        assert found.low is not None
        assert found.high is not None
        held += found.low <= mean <= found.high
    assert 925 <= held <= 975  # 950 of 1000, and three and a half standard deviations of that count
