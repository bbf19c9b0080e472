"""Order statistics and drift."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.records import Note, NoteKind
from kernelmark.stats import drift, summarise

TIMES = st.lists(st.integers(0, 10**12) | st.floats(0, 1e12), min_size=1, max_size=60)


def test_a_hundred_samples_are_described() -> None:
    found = summarise(list(range(100, 0, -1)))
    assert (found.samples, found.min_ns, found.max_ns) == (100, 1, 100)
    assert (found.median_ns, found.mean_ns) == (50.5, 50.5)
    assert (found.p10_ns, found.p90_ns) == (11, 90)
    assert found.std_ns == pytest.approx(29.011, abs=1e-3)
    assert found.notes == ()


def test_the_tails_are_samples_at_the_rounded_rank() -> None:
    found = summarise([10, 20, 30, 40, 50, 60, 70, 80, 90, 1000])
    assert (found.p10_ns, found.p90_ns) == (20, 90)


def test_nine_samples_have_no_tails_and_say_so() -> None:
    found = summarise(range(1, 10))
    assert found.p10_ns is None
    assert found.p90_ns is None
    assert found.std_ns is not None
    assert found.notes == (Note.of(NoteKind.NO_TAILS, samples=9, needed=10),)


def test_one_sample_has_no_spread_and_says_so() -> None:
    found = summarise([7])
    assert (found.median_ns, found.std_ns, found.p10_ns) == (7, None, None)
    assert found.notes == (
        Note.of(NoteKind.NO_DEVIATION, samples=1, needed=2),
        Note.of(NoteKind.NO_TAILS, samples=1, needed=10),
    )


def test_equal_samples_are_called_a_coarse_clock() -> None:
    found = summarise([1000] * 12)
    assert found.std_ns == 0
    assert found.notes == (Note.of(NoteKind.EQUAL_SAMPLES, samples=12),)


def test_no_sample_is_an_error() -> None:
    with pytest.raises(ValueError, match="no sample"):
        summarise([])


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf")])
def test_what_is_no_time_is_refused_with_its_place(bad: float) -> None:
    with pytest.raises(ValueError, match="sample 1 is"):
        summarise([5, bad])


@given(TIMES, st.randoms(use_true_random=False))
def test_the_order_of_samples_changes_nothing(samples: list[float], random) -> None:
    shuffled = samples.copy()
    random.shuffle(shuffled)
    assert summarise(shuffled) == summarise(samples)


@given(TIMES)
def test_everything_lies_between_the_smallest_and_the_largest(samples: list[float]) -> None:
    found = summarise(samples)
    for value in (found.median_ns, found.mean_ns, found.p10_ns, found.p90_ns):
        assert value is None or found.min_ns <= value <= found.max_ns
    assert found.p10_ns is None or found.p10_ns <= found.median_ns <= found.p90_ns


def test_drift_is_the_change_of_the_median() -> None:
    assert drift([100, 100, 900], [110, 90, 110]) == pytest.approx(0.10)


@pytest.mark.parametrize(("first", "second"), [([], [1]), ([1], []), ([0, 0], [1])])
def test_drift_from_nothing_is_none(first: list[int], second: list[int]) -> None:
    assert drift(first, second) is None
