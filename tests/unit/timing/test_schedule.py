"""The order of passes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.timing.schedule import Slot, schedule


def _order(names: str, blocks: int) -> list[str]:
    slots = schedule(names, blocks)
    return ["".join(slot.name for slot in slots if slot.block == block) for block in range(blocks)]


@pytest.mark.spec("T28")
def test_a_block_is_mirrored_and_the_next_one_starts_from_the_other_end() -> None:
    assert _order("ABC", 3) == ["ABCCBA", "CBAABC", "ABCCBA"]


def test_two_alternate() -> None:
    assert _order("AB", 2) == ["ABBA", "BAAB"]


def test_one_alone_is_timed_twice_in_each_block() -> None:
    assert _order("A", 2) == ["AA", "AA"]


def test_a_slot_knows_its_place() -> None:
    assert schedule("AB", 1) == (Slot("A", 0, 0), Slot("B", 0, 1), Slot("B", 0, 2), Slot("A", 0, 3))


@given(st.integers(1, 6), st.integers(1, 12))
def test_all_have_the_same_mean_place_in_every_block(names: int, blocks: int) -> None:
    for block in range(blocks):
        places: Counter[str] = Counter()
        for slot in schedule("ABCDEF"[:names], blocks):
            if slot.block == block:
                places[slot.name] += slot.position
        assert set(places.values()) == {2 * names - 1}
