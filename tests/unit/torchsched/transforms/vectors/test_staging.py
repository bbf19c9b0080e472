"""Nests run in the same loops where none needs another's result before it is finished."""

from __future__ import annotations

import pytest

from tests.unit.torchsched.transforms.vectors.nests_by_hand import (
    OUT,
    X,
    Y,
    Z,
    elementwise,
    nest,
    sum_of_rows,
)
from torchsched.transforms.vectors.staging import divided_row, stages


def test_elementwise_nests_share_their_loops_in_any_order_of_axes() -> None:
    first = elementwise([3, 5], X, Y).labelled([0, 1])
    second = nest([5, 3], {Y: (1, 5)}, (OUT, (1, 5))).labelled([1, 0])
    (found,) = stages([first, second], ())
    assert [axis.label for axis in found.nests[1].axes] == [0, 1]


def test_a_sum_shares_the_loops_of_what_it_adds_up() -> None:
    exponential = elementwise([3, 5], X, Y).labelled([0, 1])
    total = sum_of_rows(3, 5, Y, Z).labelled([0, 1])
    assert len(stages([exponential, total], (0,))) == 1


def test_what_needs_a_finished_sum_of_its_row_waits_for_it() -> None:
    total = sum_of_rows(3, 5, X, Z).labelled([0, 1])
    divided = nest([3, 5], {X: (5, 1), Z: (1, 0)}, (OUT, (5, 1))).labelled([0, 1])
    assert len(stages([total, divided], (0,))) == 2


def test_what_takes_a_sum_alone_runs_as_it_leaves_its_loops() -> None:
    total = sum_of_rows(3, 5, X, Z).labelled([0, 1])
    mean = nest([3], {Z: (1,)}, (OUT, (1,))).labelled([0])
    (found,) = stages([total, mean], ())
    assert len(found.nests) == len(found.after) == 1
    assert found.after[0].reads[0].strides == (1, 0)
    assert [axis.size for axis in found.after[0].axes] == [3, 5]


def test_a_transposed_reader_waits() -> None:
    first = elementwise([4, 4], X, Y).labelled([0, 1])
    second = nest([4, 4], {Y: (1, 4)}, (OUT, (4, 1))).labelled([0, 1])
    assert len(stages([first, second], ())) == 2


def test_results_kept_through_some_of_the_loops_only_do_not_share_them() -> None:
    rows = sum_of_rows(3, 5, X, Y).labelled([0, 1])
    columns = nest([3, 5], {X: (5, 1)}, (Z, (0, 1))).labelled([0, 1])
    assert len(stages([rows, columns], ())) == 2


@pytest.mark.parametrize(
    ("sizes", "work", "threads", "row"),
    [
        ([64, 56], 1 << 20, 2, 0),
        ([3, 64], 1 << 20, 2, 1),  # 3 over 2 threads is a third lost
        ([100], 1 << 20, 2, 0),
        ([3], 1 << 20, 2, 0),
        ([64], 100, 2, None),
        ([64], 1 << 20, 1, None),
        ([1], 1 << 20, 2, None),
        ([], 1 << 20, 2, None),
    ],
)
def test_a_loop_that_threads_share_evenly_is_divided(
    sizes: list[int], work: int, threads: int, row: int | None
) -> None:
    assert divided_row(sizes, work, threads, 32768) == row
