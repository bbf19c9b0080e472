"""The plan of a stage follows from sizes and strides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.torchsched.transforms.vectors.nests_by_hand import OUT, W, X, elementwise, nest, sum_of_rows
from torchsched.transforms.vectors.nests import Combiner, Nest
from torchsched.transforms.vectors.plans import Choices, LoopPlan, plan_loops
from torchsched.transforms.vectors.staging import Together

WIDE = Choices(vector_bits=512)


def planned(*nests: Nest, choices: Choices = WIDE) -> LoopPlan:
    return plan_loops(Together(tuple(nests)), choices)


@pytest.mark.parametrize(
    ("bits", "element", "width"), [(512, 32, 16), (512, 64, 8), (256, 32, 8), (128, 32, 4)]
)
def test_a_vector_fills_a_register(bits: int, element: int, width: int) -> None:
    plan = planned(
        nest([4096], {X: (1,)}, (OUT, (1,)), element_bits=element), choices=Choices(vector_bits=bits)
    )
    assert (plan.vector, plan.width, plan.unroll) == (0, width, 4)


@pytest.mark.parametrize(
    ("size", "width", "unroll"),
    [
        (14, 16, 1),
        (7, 8, 1),
        (12, 16, 1),
        (8, 8, 1),
        (3, 4, 1),
        (2, 2, 1),
        (28, 16, 2),
        (56, 16, 4),
        (80, 16, 3),
    ],
)
def test_short_loops_take_the_fewest_vectors_and_no_longer_ones_than_they_need(
    size: int, width: int, unroll: int
) -> None:
    plan = planned(nest([100, size], {X: (size + 1, 1)}, (OUT, (size, 1))))
    assert (plan.vector, plan.width, plan.unroll) == (1, width, unroll)


def test_what_cannot_be_masked_has_no_vector_longer_than_the_loop() -> None:
    divided = nest([100, 12], {X: (13, 1)}, (OUT, (12, 1)), maskable=False)
    assert (planned(divided).width, planned(divided).masked) == (8, False)


def test_a_sum_along_contiguous_elements_keeps_partial_results() -> None:
    plan = planned(sum_of_rows(100, 4096, X, OUT))
    assert (plan.vector, plan.carried, plan.parallel, plan.unroll) == (1, (1,), (0,), 4)


def test_a_sum_across_rows_has_its_vectors_along_what_is_kept() -> None:
    plan = planned(nest([4096, 100], {X: (100, 1)}, (OUT, (0, 1))))
    assert (plan.vector, plan.carried) == (1, (0,))


def test_a_reduction_that_must_keep_its_order_has_no_vectors_along_it() -> None:
    unknown = nest([100, 4096], {X: (4096, 1)}, (OUT, (1, 0)), combiner=None)
    assert planned(unknown).vector != 1


def test_a_long_sum_is_cut_into_blocks_and_a_long_maximum_is_not() -> None:
    assert planned(sum_of_rows(1, 1 << 20, X, OUT)).cascade == 512 * 64
    assert planned(sum_of_rows(1, 4096, X, OUT)).cascade == 0
    largest = nest([1, 1 << 20], {X: (1 << 20, 1)}, (OUT, (1, 0)), combiner=Combiner.MAX_FLOAT)
    assert planned(largest).cascade == 0


def test_functions_leave_registers_to_themselves() -> None:
    plan = planned(nest([4096], {X: (1,)}, (OUT, (1,)), functions=1))
    assert plan.unroll == 2


def convolution(channels: int, filters: int, size: int, kernel: int = 3) -> Nest:
    """Build a convolution without padding: loops over filter, row, column, channel, and the kernel's two."""
    line = size + kernel - 1
    plane = line * line
    taps = kernel * kernel
    return nest(
        [filters, size, size, channels, kernel, kernel],
        [(X, (0, line, 1, plane, line, 1)), (W, (channels * taps, 0, 0, taps, kernel, 1))],
        (OUT, (size * size, size, 1, 0, 0, 0)),
    )


@pytest.mark.parametrize(
    ("size", "unroll", "row_by", "jam_by"), [(56, 4, 1, 4), (28, 2, 2, 4), (14, 1, 4, 4), (112, 4, 1, 4)]
)
def test_a_convolution_keeps_a_block_of_results_in_registers(
    size: int, unroll: int, row_by: int, jam_by: int
) -> None:
    plan = planned(convolution(64, 64, size))
    assert (plan.vector, plan.jam, plan.row) == (2, 0, 1)
    assert (plan.unroll, plan.row_by, plan.jam_by) == (unroll, row_by, jam_by)
    assert plan.carried == (3, 4, 5)
    assert plan.unroll * plan.row_by * (plan.jam_by + 1) < WIDE.registers


def test_fewer_registers_hold_fewer_results() -> None:
    plan = planned(convolution(64, 60, 56), choices=Choices(vector_bits=256, registers=16))
    assert plan.unroll * plan.row_by * (plan.jam_by + 1) <= 14


def test_a_search_may_turn_the_jam_off() -> None:
    plan = planned(convolution(64, 64, 56), choices=replace(WIDE, jam=1))
    assert (plan.jam, plan.jam_by) == (None, 1)


def test_what_lies_across_is_read_along_and_transposed() -> None:
    plan = planned(elementwise([640, 480], X, OUT, (1, 640)))
    assert (plan.square, plan.vector, plan.row, plan.row_by, plan.width) == (True, 1, 0, 16, 16)


def test_a_matrix_too_small_for_a_square_is_not_transposed_in_registers() -> None:
    assert not planned(elementwise([3, 480], X, OUT, (1, 3))).square


def test_single_elements_have_no_vectors() -> None:
    plan = planned(nest([1], {X: (0,)}, (OUT, (0,))))
    assert (plan.vector, plan.width, plan.unroll) == (None, 1, 1)


def test_a_window_read_in_steps_of_two_has_vectors_along_its_row() -> None:
    pooling = nest([64, 28, 2], {X: (56, 2, 1)}, (OUT, (28, 1, 0)), combiner=Combiner.MAX_FLOAT)
    assert planned(pooling).vector == 1
