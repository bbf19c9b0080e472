"""Loops over dimensions are named, and joined where they run over memory like one, by arithmetic alone."""

from __future__ import annotations

import pytest

from torchsched.transforms.gemm.axes import UNIT, Part, final_names, grouped, joined, named, parts_of


def test_loops_are_named_by_what_they_run_over() -> None:
    assert named([0, 1, 3], [0, 3, 2], [0, 1, 2]) == (
        ("b0", "m1", "k3"),
        ("b0", "k3", "n2"),
        ("b0", "m1", "n2"),
    )


@pytest.mark.parametrize(
    ("lhs", "rhs", "out"),
    [([0, 2], [2, 1], [0, 1, 3]), ([0, 2, 3], [2, 1], [0, 1]), ([0, 2], [2, 1, 3], [0, 1])],
    ids=["in the result alone", "in the left operand alone", "in the right operand alone"],
)
def test_a_loop_over_one_tensor_alone_is_in_no_product(
    lhs: list[int], rhs: list[int], out: list[int]
) -> None:
    assert named(lhs, rhs, out) is None


def test_rows_of_rows_are_rows() -> None:
    orders = [("m0", "m1", "k3"), ("k3", "n2"), ("m0", "m1", "n2")]
    groups = joined(orders)
    assert groups == {"m0": ("m0", "m1"), "k3": ("k3",), "n2": ("n2",)}
    assert final_names(groups, orders) == {"m0": "m", "k3": "k", "n2": "n"}


def test_loops_that_are_apart_somewhere_are_not_joined() -> None:
    orders = [("m0", "m1", "k3"), ("k3", "n2"), ("m1", "m0", "n2")]
    groups = joined(orders)
    assert groups["m0"] == ("m0",)
    # the innermost in the result stays a loop over rows, where neither tensor is contiguous along one
    assert final_names(groups, orders) == {"m0": "m", "m1": "bm1", "k3": "k", "n2": "n"}


def test_several_batches_are_joined_and_several_sums_too() -> None:
    orders = [("b0", "b1", "m2", "k4", "k5"), ("b0", "b1", "k4", "k5", "n3"), ("b0", "b1", "m2", "n3")]
    groups = joined(orders)
    assert groups["b0"] == ("b0", "b1")
    assert groups["k4"] == ("k4", "k5")


def test_a_sum_over_two_loops_that_cannot_be_joined_is_refused() -> None:
    orders = [("m0", "k2", "k3"), ("k3", "k2", "n1"), ("m0", "n1")]
    assert final_names(joined(orders), orders) is None


def test_columns_are_what_the_result_is_contiguous_along() -> None:
    orders = [("m0", "k4"), ("n1", "n2", "k4"), ("n2", "m0", "n1")]
    assert final_names(joined(orders), orders) == {"m0": "m", "n1": "n", "n2": "bn2", "k4": "k"}


def test_a_joined_loops_index_says_that_of_each_part() -> None:
    parts = parts_of({"m0": ("m0", "m1", "m2")}, {"m0": 4, "m1": 5, "m2": 6}, {"m0": "m"})
    assert parts == {"m0": Part("m", 30, 4), "m1": Part("m", 6, 5), "m2": Part("m", 1, 6)}


@pytest.mark.parametrize(
    ("axes", "names", "groups"),
    [
        (("m0", "m1", "k"), ("m", "k"), [[0, 1], [2]]),
        (("m0", "u", "k"), ("m", "k"), [[0, 1], [2]]),
        (("u", "v", "m0", "k"), ("m", "k"), [[0, 1, 2], [3]]),
        (("k", "m0", "u"), ("k", "m"), [[0], [1, 2]]),
        (("u", "v"), (UNIT,), [[0, 1]]),
        ((), (), []),
    ],
)
def test_dimensions_become_one_where_their_loops_are(
    axes: tuple[str, ...], names: tuple[str, ...], groups: list[list[int]]
) -> None:
    assert grouped(axes, {"m0": "m", "m1": "m", "k": "k"}) == (names, groups)
