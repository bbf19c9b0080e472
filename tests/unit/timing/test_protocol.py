"""The protocol as a value: options that are checked when they are made, the order of passes, when to stop."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import UsageError
from kernelmark.records import Cache
from kernelmark.timing import AtPrecision, Budget, TimingOptions
from kernelmark.timing.protocol import Slot, order_of


def test_the_default_is_cold_without_copies() -> None:
    assert TimingOptions() == TimingOptions(budget=Budget(), cache=Cache.COLD, count_copies=False)


def test_text_becomes_a_cache_state() -> None:
    assert TimingOptions(cache="warm").cache is Cache.WARM


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cache": "hot"}, "cache='hot' is unknown: give 'cold' or 'warm'"),
        ({"count_copies": 1}, "count_copies=1: give True or False"),
        ({"budget": 100}, "budget=100: give a kernelmark.timing.Budget"),
        ({"stop": 0.01}, r"stop=0.01: give None or a rule such as AtPrecision\(0.01\)"),
    ],
)
def test_what_is_no_option_is_refused(wrong: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TimingOptions(**wrong)


# --- order ------------------------------------------------------------------------------------------


def _order(names: str, blocks: int) -> list[str]:
    return ["".join(slot.name for slot in order_of(names, block)) for block in range(blocks)]


@pytest.mark.spec("T28")
def test_a_block_is_mirrored_and_the_next_one_starts_from_the_other_end() -> None:
    assert _order("ABC", 3) == ["ABCCBA", "CBAABC", "ABCCBA"]


def test_two_alternate() -> None:
    assert _order("AB", 2) == ["ABBA", "BAAB"]


def test_one_alone_is_timed_twice_in_each_block() -> None:
    assert _order("A", 2) == ["AA", "AA"]


def test_a_slot_knows_its_place() -> None:
    assert order_of("AB", 0) == (Slot("A", 0, 0), Slot("B", 0, 1), Slot("B", 0, 2), Slot("A", 0, 3))


@given(st.integers(1, 6), st.integers(1, 12))
def test_all_have_the_same_mean_place_in_every_block(names: int, blocks: int) -> None:
    for block in range(blocks):
        places: Counter[str] = Counter()
        for slot in order_of("ABCDEF"[:names], block):
            places[slot.name] += slot.position
        assert set(places.values()) == {2 * names - 1}


def test_a_round_of_turns_is_each_once_in_the_order_given() -> None:
    assert [slot.name for slot in order_of("ABC", 1, turns=True)] == ["A", "B", "C"]


# --- stopping ---------------------------------------------------------------------------------------

STEADY = [[100.0, 101.0], [101.0, 100.0], [100.0, 101.0]]
SWINGING = [[100.0], [150.0], [90.0]]


def test_a_precision_that_is_reached_is_told_with_value_and_limit() -> None:
    rule = AtPrecision(0.05, least=3)
    assert rule.reached({"a": STEADY, "b": STEADY}) == "known to 0 %, where 5 % was asked for"


def test_what_all_implementations_share_does_not_keep_a_ratio_from_being_known() -> None:
    rule = AtPrecision(0.05, least=3)
    assert rule.reached({"a": SWINGING, "b": [[2 * each[0]] for each in SWINGING]})
    assert not rule.reached({"a": SWINGING})


def test_the_worst_of_several_ratios_decides_and_too_few_blocks_never_do() -> None:
    assert not AtPrecision(0.05, least=3).reached({"a": STEADY, "b": STEADY, "c": SWINGING})
    assert not AtPrecision(0.05, least=4).reached({"a": STEADY, "b": STEADY})


def test_a_reading_of_nothing_is_no_precision() -> None:
    assert not AtPrecision(0.05, least=2).reached({"a": [[0.0], [0.0]]})


@pytest.mark.parametrize("wrong", [{"half_width": 0}, {"half_width": 1}, {"least": 1}, {"least": 2.5}])
def test_a_rule_that_no_run_can_keep_is_refused(wrong: dict) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        AtPrecision(**wrong)
