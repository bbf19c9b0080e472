"""The ratio of two implementations and its interval over blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import TimingError
from kernelmark.stats import paired_ratio

NS = st.floats(1.0, 1e9)
BLOCKS = st.integers(1, 6).flatmap(
    lambda count: st.tuples(
        *[st.lists(st.lists(NS, min_size=1, max_size=5), min_size=count, max_size=count) for _ in "ab"]
    )
)


def test_the_value_is_the_geometric_mean_of_the_blocks() -> None:
    found = paired_ratio([[10], [10]], [[20], [5]])
    assert found.value == pytest.approx(1.0)
    assert found.block_ratios == pytest.approx((2.0, 0.5))
    assert found.blocks == 2


def test_the_interval_is_the_t_interval_of_the_logarithms() -> None:
    ratios = [1.01, 1.02, 1.03, 1.02, 1.01]
    found = paired_ratio([[100.0]] * 5, [[100.0 * ratio] for ratio in ratios])
    logs = np.log(ratios)
    reach = 2.7764451052 * logs.std(ddof=1) / math.sqrt(5)
    assert found.value == pytest.approx(math.exp(logs.mean()))
    assert found.low == pytest.approx(math.exp(logs.mean() - reach))
    assert found.high == pytest.approx(math.exp(logs.mean() + reach))
    assert found.verdict == "faster"


def test_each_block_takes_the_median_of_its_samples() -> None:
    assert paired_ratio([[10, 10, 10_000]], [[20, 30, 1]]).value == pytest.approx(2.0)


@pytest.mark.spec("T28")
def test_one_block_gives_a_ratio_and_no_interval() -> None:
    found = paired_ratio([[10, 12]], [[22, 22]])
    assert found.value == pytest.approx(2.0)
    assert (found.low, found.high, found.verdict) == (None, None, "no interval")


@pytest.mark.parametrize(
    ("baseline", "verdict"),
    [([20, 21, 22], "faster"), ([5, 5.1, 5.2], "slower"), ([9, 10, 11], "undecided")],
)
def test_the_verdict_follows_from_the_interval(baseline: list[float], verdict: str) -> None:
    assert paired_ratio([[10]] * 3, [[each] for each in baseline]).verdict == verdict


def test_blocks_that_agree_exactly_give_an_interval_of_no_width() -> None:
    found = paired_ratio([[10]] * 4, [[20]] * 4)
    assert found.low == found.value == found.high == pytest.approx(2.0)
    assert found.verdict == "faster"


def test_equal_times_are_undecided() -> None:
    assert paired_ratio([[10]] * 4, [[10]] * 4).verdict == "undecided"


def test_more_confidence_widens_the_interval() -> None:
    ours, baseline = [[10]] * 4, [[10], [11], [12], [11]]
    wide = paired_ratio(ours, baseline, confidence=0.99)
    narrow = paired_ratio(ours, baseline, confidence=0.9)
    assert wide.low < narrow.low < narrow.high < wide.high
    assert (wide.confidence, narrow.confidence) == (0.99, 0.9)


@pytest.mark.parametrize(
    ("ours", "baseline", "message"),
    [
        ([[1]], [[1], [1]], "ours has 1, the baseline has 2"),
        ([], [], "no block"),
        ([[1], []], [[1], [1]], "block 1 of ours is empty"),
        ([[1]], [[]], "block 0 of the baseline is empty"),
    ],
)
def test_blocks_that_do_not_pair_are_refused(ours: list, baseline: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        paired_ratio(ours, baseline)


@pytest.mark.parametrize("bad", [0, -3, float("inf"), float("nan")])
def test_a_reading_that_has_no_ratio_is_refused_with_its_block(bad: float) -> None:
    with pytest.raises(TimingError, match="block 1 of the baseline holds a reading of"):
        paired_ratio([[5], [5]], [[5], [5, bad, 5]])


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_confidence_outside_its_range_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        paired_ratio([[1]], [[1]], confidence=confidence)


@given(BLOCKS)
def test_swapping_the_sides_inverts_ratio_and_interval(pair: tuple[list, list]) -> None:
    found, swapped = paired_ratio(*pair), paired_ratio(*reversed(pair))
    assert swapped.value == pytest.approx(1 / found.value)
    if found.low is not None:
        assert swapped.low == pytest.approx(1 / found.high)
        assert swapped.high == pytest.approx(1 / found.low)


@given(BLOCKS, st.floats(1e-3, 1e3))
def test_scaling_both_sides_changes_nothing(pair: tuple[list, list], factor: float) -> None:
    found = paired_ratio(*pair)
    scaled = paired_ratio(*[[[factor * ns for ns in block] for block in side] for side in pair])
    assert scaled.value == pytest.approx(found.value)
    assert (scaled.low is None) == (found.low is None)
    if found.low is not None:
        assert (scaled.low, scaled.high) == pytest.approx((found.low, found.high))


@given(BLOCKS, st.randoms(use_true_random=False))
def test_the_order_of_samples_in_a_block_changes_nothing(pair: tuple[list, list], random) -> None:
    shuffled = [[random.sample(block, len(block)) for block in side] for side in pair]
    assert paired_ratio(*shuffled) == paired_ratio(*pair)


# --- the same callable under two names, on a machine that drifts ------------------------------------------

SAMPLES = 100


def _readings(rng: np.random.Generator, count: int) -> np.ndarray:
    """Give the times of one callable run ``count`` times in a row: noise of 1 %, and a drift that wanders."""
    wander = np.cumsum(rng.normal(0, 0.001, count))
    return 1e5 * np.exp(wander + rng.normal(0, 0.01, count))


def _deal(readings: np.ndarray, blocks: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Deal a series out as it is run: A B B A in even blocks, B A A B in odd ones."""
    a, b = [], []
    for block, series in enumerate(np.split(readings, blocks)):
        outer_first, inner_first, inner_second, outer_second = np.split(series, 4)
        outer, inner = np.r_[outer_first, outer_second], np.r_[inner_first, inner_second]
        a.append(inner if block % 2 else outer)
        b.append(outer if block % 2 else inner)
    return a, b


def _bootstrap_leaves_out_one(rng: np.random.Generator, a: np.ndarray, b: np.ndarray) -> bool:
    """Do what many tools do: resample the pooled samples of each side as if they were independent."""
    ratios = np.median(rng.choice(b, (200, b.size)), axis=1) / np.median(rng.choice(a, (200, a.size)), axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return not low <= 1 <= high


def test_under_drift_the_interval_over_blocks_is_honest_where_a_pooled_bootstrap_is_not() -> None:
    rng = np.random.default_rng(20240229)
    comparisons, blocks_wrong, bootstrap_wrong = 300, 0, 0
    for _ in range(comparisons):
        readings = _readings(rng, 2 * SAMPLES)
        a, b = _deal(readings, 10)
        found = paired_ratio([list(x) for x in a], [list(x) for x in b])
        blocks_wrong += found.verdict != "undecided"
        (a,), (b,) = _deal(readings, 1)
        bootstrap_wrong += _bootstrap_leaves_out_one(rng, a, b)
    assert 0.02 * comparisons <= blocks_wrong <= 0.08 * comparisons
    assert bootstrap_wrong > 0.25 * comparisons
