"""Rows are grouped, and none is lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.records import Row
from kernelmark.report.groups import by_op


@given(places=st.lists(st.tuples(st.sampled_from([None, "A", "B"]), st.sampled_from(["x", "y"])), max_size=9))
def test_every_row_is_in_exactly_one_group_and_in_its_order(
    make_row: Callable[..., Row], places: list[tuple[str | None, str]]
):
    rows = [make_row(str(i), op=op, case=case) for i, (op, case) in enumerate(places)]
    ops = by_op(rows)
    assert [each.op for each in ops] == list(dict.fromkeys(op for op, _ in places))
    grouped = [row for op in ops for case in op.cases for row in case.rows]
    assert sorted(row.implementation for row in grouped) == sorted(row.implementation for row in rows)
    for op in ops:
        for case in op.cases:
            assert {(row.op, row.case) for row in case.rows} == {(op.op, case.case)}
            order = [int(row.implementation) for row in case.rows]
            assert order == sorted(order)


def test_the_times_of_a_case_share_a_scale_chosen_by_its_shortest_time(
    make_row: Callable[..., Row], make_timing: Callable
):
    rows = [make_row(timing=make_timing(812_300)), make_row(timing=make_timing(1_204_000)), make_row()]
    (op,) = by_op(rows)
    assert op.cases[0].scale.format(1_204_000) == "1204.0 µs"


@pytest.mark.spec("T36")
def test_a_case_shows_the_parameters_of_its_rows(make_row: Callable[..., Row]):
    (op,) = by_op([make_row(params={"n": 3}), make_row(params={"n": 3})])
    assert op.cases[0].params == {"n": 3}
