"""A nest keeps what it computes while its loops change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.torchsched.transforms.vectors.nests_by_hand import OUT, W, X, elementwise, nest
from torchsched.transforms.vectors.accesses import Access
from torchsched.transforms.vectors.nests import Combiner, simplified


def test_contiguous_loops_become_one() -> None:
    found = simplified(elementwise([2, 3, 4, 5], X, OUT))
    assert [axis.size for axis in found.axes] == [120]
    assert found.reads[0].strides == (1,)


def test_a_broadcast_operand_keeps_its_loop_apart() -> None:
    found = simplified(nest([2, 3, 4], {X: (12, 4, 1), W: (0, 0, 1)}, (OUT, (12, 4, 1))))
    assert [axis.size for axis in found.axes] == [6, 4]
    assert found.reads[1].strides == (0, 1)


def test_loops_of_one_iteration_are_dropped() -> None:
    found = simplified(nest([1, 8, 1], {X: (8, 1, 1)}, (OUT, (8, 1, 1))))
    assert [axis.size for axis in found.axes] == [8]


def test_a_reduced_loop_merges_with_reduced_ones_only() -> None:
    found = simplified(nest([4, 5, 6], {X: (30, 6, 1)}, (OUT, (1, 0, 0))))
    assert [(axis.size, axis.reduced) for axis in found.axes] == [(4, False), (30, True)]


def test_a_loop_whose_counter_is_asked_for_is_not_merged_away() -> None:
    whole = elementwise([4, 5], X, OUT)
    asked = replace(whole, indices=(Access(-2, (0, 1)),))
    assert [axis.size for axis in simplified(asked).axes] == [4, 5]
    assert [axis.size for axis in simplified(whole).axes] == [20]


def test_a_window_keeps_its_loops() -> None:
    pooling = nest([8, 4, 3], {X: (16, 2, 1)}, (OUT, (4, 1, 0)), combiner=Combiner.MAX_FLOAT)
    assert [axis.size for axis in simplified(pooling).axes] == [8, 4, 3]


def test_splitting_and_ordering_move_all_accesses() -> None:
    found = nest([6, 4], {X: (4, 1)}, (OUT, (4, 1))).split(0, 3).ordered([1, 2, 0])
    assert [axis.size for axis in found.axes] == [3, 4, 2]
    assert found.reads[0].strides == (4, 1, 12) == found.writes[0].strides
    assert found.iterations == 24


@pytest.mark.parametrize(("combiner", "rounds"), [(Combiner.ADD, True), (Combiner.MAX_FLOAT, False)])
def test_what_loses_accuracy_is_known(combiner: Combiner, rounds: bool) -> None:
    assert combiner.rounds is rounds
