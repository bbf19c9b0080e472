"""Who stays in a race follows from the intervals, and where they do not decide, from the order of the ratios."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kernelmark.models.tuning.racing import GROUP, RUNGS, Drop, Fate, Race, groups
from kernelmark.records import Ratio


def ratio(value: float, reach: float = 0.01) -> Ratio:
    return Ratio(value=value, low=value - reach, high=value + reach, blocks=4)


def test_one_that_takes_certainly_longer_leaves() -> None:
    race = Race(alive=(1, 2)).after(0, {1: ratio(1.2), 2: ratio(1.0, 0.1)})
    assert race.alive == (2,)
    assert race.dropped == {1: Drop(Fate.SLOWER, 0)}


def test_one_that_is_certainly_faster_takes_the_incumbents_place() -> None:
    race = Race(alive=(1, 2, 3)).after(0, {1: ratio(0.9), 2: ratio(0.8), 3: ratio(0.82, 0.05)})
    assert race.incumbent == 2
    assert race.alive == (3,)
    assert race.dropped[1] == Drop(Fate.SLOWER, 0)
    assert 0 not in race.dropped


def test_an_incumbent_that_is_beaten_leaves() -> None:
    race = Race(incumbent=5, alive=(1,)).after(1, {1: ratio(0.9)})
    assert race == Race(1, (), {5: Drop(Fate.SLOWER, 1)})


def test_of_the_undecided_the_better_half_goes_on() -> None:
    undecided = {number: ratio(1 + 0.001 * number, 0.05) for number in range(1, 6)}
    race = Race(alive=(5, 4, 3, 2, 1)).after(0, undecided)
    assert race.alive == (3, 2, 1)
    assert race.dropped == {4: Drop(Fate.BEHIND, 0), 5: Drop(Fate.BEHIND, 0)}


def test_where_no_rung_follows_the_undecided_stay() -> None:
    undecided = {number: ratio(1 + 0.001 * number, 0.05) for number in range(1, 6)}
    assert Race(alive=(1, 2, 3, 4, 5)).after(2, undecided, last=True).alive == (1, 2, 3, 4, 5)


def test_one_that_was_not_measured_stays_as_it_is() -> None:
    race = Race(alive=(1, 2)).after(0, {1: ratio(0.5)}, last=True)
    assert race == Race(1, (2,), {})


def test_a_ratio_without_an_interval_decides_nothing() -> None:
    race = Race(alive=(1,)).after(0, {1: Ratio(value=0.1, blocks=1)})
    assert (race.incumbent, race.alive) == (0, (1,))


def test_one_that_failed_leaves_and_the_default_takes_an_incumbents_place() -> None:
    race = Race(incumbent=2, alive=(1, 3))
    assert race.without(1, 1) == Race(2, (3,), {1: Drop(Fate.FAILED, 1)})
    assert race.without(2, 1) == Race(0, (1, 3), {2: Drop(Fate.FAILED, 1)})


ratios = st.dictionaries(
    st.integers(1, 30),
    st.builds(ratio, st.floats(0.2, 3.0), st.floats(0.001, 0.15)),
    max_size=30,
)


@given(ratios, st.booleans())
def test_everyone_is_in_one_place_and_each_rung_is_smaller(found: dict[int, Ratio], last: bool) -> None:
    before = Race(alive=tuple(found))
    after = before.after(0, found, last=last)
    places = [*after.alive, *after.dropped, *([after.incumbent] if after.incumbent else [])]
    assert sorted(places) == sorted(found)
    assert last or len(after.alive) <= (len(found) + 1) // 2
    for number, each in found.items():
        if each.low is not None and each.low > 1:
            assert after.dropped[number].fate is Fate.SLOWER
    if after.incumbent:
        assert (found[after.incumbent].high or 2) < 1


@given(st.integers(0, 40))
def test_runs_hold_everyone_once_and_few_at_a_time(count: int) -> None:
    parts = groups(range(count))
    assert sorted(number for part in parts for number in part) == list(range(count))
    assert all(1 <= len(part) <= GROUP for part in parts)
    assert max(map(len, parts), default=0) - min(map(len, parts), default=0) <= 1


def test_each_rung_measures_more_than_the_one_before() -> None:
    for less, more in pairwise(RUNGS):
        assert more.sample_ms == 3 * less.sample_ms
        assert more.blocks > less.blocks
    assert all(each.blocks >= 4 and each.min_count >= 2 * each.blocks for each in RUNGS)
