"""Nests that hand tensors on are put together where their rows match and what stays between them fits the cache."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.torchsched.transforms.vectors.nests_by_hand import (
    OUT,
    W,
    X,
    Y,
    Z,
    elementwise,
    nest,
    sum_of_rows,
)
from torchsched.transforms.vectors.grouping import Group, Limits, blocked_row, grouped, matched
from torchsched.transforms.vectors.nests import Nest

SIZES = {X: 12, Y: 12, Z: 3, W: 4, OUT: 12}


def groups_of(
    *nests: Nest, needs: Mapping[int, set[int]], sizes: Mapping[int, int], limits: Limits | None = None
) -> list[Group]:
    listed = [frozenset(needs.get(k, ())) for k in range(len(nests))]
    return grouped(dict(enumerate(nests)), listed, sizes, limits or Limits())


def test_a_softmax_is_one_group_with_its_rows_around() -> None:
    nests = (
        elementwise([3, 40], X, Y),
        sum_of_rows(3, 40, Y, Z),
        nest([3, 40], {Y: (40, 1), Z: (1, 0)}, (OUT, (40, 1))),
    )
    sizes = {X: 120, Y: 120, Z: 3, OUT: 120}
    (group,) = groups_of(*nests, needs={1: {0}, 2: {0, 1}}, sizes=sizes)
    assert group.positions == (0, 1, 2)
    assert [group.size(label) for label in group.rows] == [3]
    assert blocked_row(group) is None


def test_reshapes_do_not_matter_and_coarser_loops_are_cut() -> None:
    # the first goes through 12 elements in one loop; the sum sees 3 by 4 of the same memory
    found = matched((0, 1), [elementwise([12], X, Y), sum_of_rows(3, 4, Y, Z)], SIZES)
    assert found is not None
    assert [axis.size for axis in found.nests[0].axes] == [3, 4]
    assert [axis.label for axis in found.nests[0].axes] == [axis.label for axis in found.nests[1].axes]


def test_loops_that_no_cut_makes_match_stay_apart() -> None:
    assert matched((0, 1), [elementwise([3, 4], X, Y), sum_of_rows(4, 3, Y, Z)], SIZES) is None


def test_a_window_over_what_another_writes_stays_apart() -> None:
    window = nest([10, 3], {Y: (1, 1)}, (OUT, (1, 0)))
    assert matched((0, 1), [elementwise([12], X, Y), window], SIZES) is None


def test_a_sum_of_everything_and_what_needs_it_stay_apart() -> None:
    total = nest([12], {X: (1,)}, (Z, (0,)))
    scaled = nest([12], {X: (1,), Z: (0,)}, (OUT, (1,)))
    found = groups_of(total, scaled, needs={1: {0}}, sizes={**SIZES, Z: 1})
    assert [group.positions for group in found] == [(0,), (1,)]


def test_what_an_outside_operation_stands_between_stays_apart() -> None:
    first, second = elementwise([12], X, Y), elementwise([12], Y, OUT)
    needs = [frozenset[int](), frozenset({0}), frozenset({0, 1})]
    found = grouped({0: first, 2: second}, needs, SIZES, Limits())
    assert [group.positions for group in found] == [(0,), (2,)]
    (together,) = grouped({0: first, 2: second}, [needs[0], needs[1], frozenset({0})], SIZES, Limits())
    assert together.positions == (0, 2)


def test_rows_side_by_side_are_taken_in_blocks() -> None:
    # along the middle of (2, 30, 50): rows are the outer loop and the 50 neighbours
    nests = (
        elementwise([2, 30, 50], X, Y),
        nest([2, 30, 50], {Y: (1500, 50, 1)}, (Z, (50, 0, 1))),
        nest([2, 30, 50], {Y: (1500, 50, 1), Z: (50, 0, 1)}, (OUT, (1500, 50, 1))),
    )
    sizes = {X: 3000, Y: 3000, Z: 100, OUT: 3000}
    (group,) = groups_of(*nests, needs={1: {0}, 2: {0, 1}}, sizes=sizes)
    block = blocked_row(group)
    assert block is not None
    assert group.size(block) == 50


def test_blocks_that_outgrow_the_cache_are_not_formed() -> None:
    rows, columns = 1 << 16, 64
    nests = (
        nest([rows, columns], {X: (columns, 1)}, (Y, (columns, 1))),
        nest([rows, columns], {Y: (columns, 1)}, (Z, (0, 1))),
        nest([rows, columns], {Y: (columns, 1), Z: (0, 1)}, (OUT, (columns, 1))),
    )
    sizes = {X: rows * columns, Y: rows * columns, Z: columns, OUT: rows * columns}
    found = groups_of(*nests, needs={1: {0}, 2: {0, 1}}, sizes=sizes)
    assert all(len(group.positions) < 3 for group in found)


def test_a_bias_joins_a_product_in_its_loops_and_the_sum_of_its_rows_does_not() -> None:
    product = nest([8, 16, 32], [(X, (32, 0, 1)), (W, (0, 1, 16))], (Y, (16, 1, 0)))
    bias = nest([8, 16], {Y: (16, 1), Z: (0, 1)}, (OUT, (16, 1)))
    sizes = {X: 256, W: 512, Y: 128, Z: 16, OUT: 128}
    (group,) = groups_of(product, bias, needs={1: {0}}, sizes=sizes)
    assert group.positions == (0, 1)
    found = groups_of(product, sum_of_rows(8, 16, Y, Z), needs={1: {0}}, sizes={**sizes, Z: 8})
    assert [each.positions for each in found] == [(0,), (1,)]


def test_groups_have_a_limit() -> None:
    chain = [elementwise([12], k, k + 1) for k in range(6)]
    needs = {k: {k - 1} for k in range(1, 6)}
    found = groups_of(*chain, needs=needs, sizes=dict.fromkeys(range(7), 12), limits=Limits(members=4))
    assert max(len(group.positions) for group in found) == 4
