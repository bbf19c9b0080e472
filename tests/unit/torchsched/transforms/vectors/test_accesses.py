"""Accesses are linear: what is done to loops changes no address."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchsched.transforms.vectors.accesses import (
    Access,
    Axis,
    Bound,
    contiguous_strides,
    mergeable,
    refinement,
)


def addresses(access: Access, sizes: list[int]) -> list[int]:
    """List the elements that loops of these sizes visit, in order."""
    turns = itertools.product(*map(range, sizes))
    return [access.offset + sum(s * i for s, i in zip(access.strides, turn, strict=True)) for turn in turns]


def axes(*sizes: int) -> list[Axis]:
    return [Axis(size, False) for size in sizes]


@pytest.mark.parametrize(
    ("shape", "strides"), [((), ()), ((5,), (1,)), ((2, 3, 4), (12, 4, 1)), ((2, 0, 4), (0, 4, 1))]
)
def test_the_last_dimension_of_a_contiguous_tensor_moves_by_one(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    assert contiguous_strides(shape) == strides


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=3), st.integers(1, 4), st.integers(1, 4), st.data())
def test_a_split_loop_visits_the_same_elements(
    strides: list[int], outer: int, inner: int, data: st.DataObject
) -> None:
    axis = data.draw(st.integers(0, len(strides) - 1))
    sizes = [2] * len(strides)
    sizes[axis] = outer * inner
    access = Access(0, tuple(strides), offset=3, bounds=(Bound(tuple(strides), -1, 4),))
    split = access.split(axis, inner)
    cut = [*sizes[:axis], outer, inner, *sizes[axis + 1 :]]
    assert addresses(split, cut) == addresses(access, sizes)
    assert split.bounds[0].strides == split.strides
    assert (split.bounds[0].offset, split.bounds[0].size) == (-1, 4)


def test_loops_are_reordered_and_dropped_with_their_strides() -> None:
    access = Access(0, (12, 4, 1), bounds=(Bound((0, 1, 0), 0, 3),))
    assert access.ordered([2, 0, 1]).strides == (1, 12, 4)
    assert access.ordered([2, 0, 1]).bounds[0].strides == (0, 0, 1)
    assert access.without(1).strides == (12, 1)


@pytest.mark.parametrize(
    ("strides", "sizes", "size", "dense"),
    [
        ((4, 1), (3, 4), 12, True),
        ((1, 3), (3, 4), 12, True),  # in another order
        ((4, 1), (3, 4), 13, False),  # one is left out
        ((5, 1), (3, 4), 15, False),  # gaps
        ((4, 1, 0), (3, 4, 7), 12, True),  # a loop that it does not depend on
        ((1, 1), (3, 4), 6, False),  # windows
        ((-1,), (4,), 4, False),
        ((), (), 1, True),
    ],
)
def test_a_dense_access_visits_each_element_once(
    strides: tuple[int, ...], sizes: tuple[int, ...], size: int, dense: bool
) -> None:
    assert Access(0, strides).dense(axes(*sizes), size) is dense


def test_an_access_through_padding_or_with_an_offset_is_not_dense() -> None:
    assert not Access(0, (1,), offset=1).dense(axes(4), 4)
    assert not Access(0, (1,), bounds=(Bound((1,), -1, 4),)).dense(axes(4), 4)


def test_loops_merge_where_every_access_goes_on() -> None:
    loops = axes(3, 4)
    whole, row, column = Access(0, (4, 1)), Access(1, (1, 0)), Access(2, (0, 1))
    assert mergeable(loops, [whole], 0, 1)
    assert not mergeable(loops, [whole], 1, 0)
    assert not mergeable(loops, [whole, row], 0, 1)
    assert not mergeable(loops, [whole, column], 0, 1)
    assert mergeable(loops, [whole, Access(3, (0, 0))], 0, 1)
    assert not mergeable([Axis(3, False), Axis(4, True)], [whole], 0, 1)
    assert not mergeable(loops, [Access(0, (4, 1), bounds=(Bound((0, 1), 0, 4),))], 0, 1)


@pytest.mark.parametrize(
    ("first", "second", "cuts"),
    [
        ([(12, 2), (1, 12)], [(4, 6), (1, 4)], (1, 4, 12)),
        ([(1, 24)], [(1, 24)], (1,)),
        ([(2, 3), (1, 2)], [(3, 2), (1, 3)], None),
        ([], [], ()),
    ],
)
def test_two_ways_through_a_buffer_are_cut_where_both_have_a_loop(
    first: list[tuple[int, int]], second: list[tuple[int, int]], cuts: tuple[int, ...] | None
) -> None:
    assert refinement(first, second) == cuts
