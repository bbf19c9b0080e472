"""Phases hold the taps that meet something, all of them and no other, and read where the spread-out input has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchsched.transforms.conv.taps import Dimension


def meetings(dimension: Dimension) -> list[tuple[int, int, int]]:
    """Each output, each tap that it meets, and the element of the input, as a dimension's phases have it."""
    found = []
    for o in range(dimension.out):
        turn, phase = divmod(o, dimension.spread)
        taps = dimension.phases[phase]
        for number in range(taps.count):
            tap = taps.first + number * dimension.tap_step
            element = turn * dimension.stride + taps.shift + number * dimension.shift_step
            found.append((o, tap, element))
    return sorted(found)


def defined(dimension: Dimension) -> list[tuple[int, int, int]]:
    """The same by definition, elements before the input and after it included."""
    found = []
    for o in range(dimension.out):
        for tap in range(dimension.kernel):
            place = o * dimension.stride + tap * dimension.dilation - dimension.low
            if place % dimension.spread == 0:
                found.append((o, tap, place // dimension.spread))
    return sorted(found)


@st.composite
def dimensions(draw: st.DrawFn) -> Dimension:
    spread = draw(st.integers(1, 6))
    return Dimension(
        out=draw(st.integers(1, 20)),
        inside=draw(st.integers(1, 12)),
        kernel=draw(st.integers(1, 8)),
        stride=draw(st.integers(1, 4)) if spread == 1 else 1,
        dilation=draw(st.integers(1, 6)),
        spread=spread,
        low=draw(st.integers(-6, 12)),
    )


@given(dimensions())
def test_phases_meet_what_the_definition_says(dimension: Dimension) -> None:
    assert meetings(dimension) == defined(dimension)
    assert dimension.products == len(defined(dimension))


@given(dimensions())
def test_margins_hold_everything_that_any_turn_reads(dimension: Dimension) -> None:
    before, after = dimension.margins
    for _, _, element in meetings(dimension):
        assert -before <= element < dimension.inside + after


@given(dimensions(), st.data())
def test_a_tap_is_found_by_its_phase_and_where_it_reads(dimension: Dimension, data: st.DataObject) -> None:
    phase = data.draw(st.integers(0, dimension.spread - 1))
    taps = dimension.phases[phase]
    shifts = {
        taps.shift + number * dimension.shift_step: taps.first + number * dimension.tap_step
        for number in range(taps.count)
    }
    least, largest = dimension.shifts
    for shift in range(least - 2, largest + 3):
        assert dimension.tap_at(phase, shift) == shifts.get(shift)


@pytest.mark.parametrize(
    ("kernel", "dilation", "counts"), [(7, 1, [3, 4]), (3, 1, [1, 2]), (3, 2, [0, 3]), (1, 1, [0, 1])]
)
def test_a_step_of_two_parts_the_taps(kernel: int, dilation: int, counts: list[int]) -> None:
    dimension = Dimension(out=40, inside=20, kernel=kernel, dilation=dilation, spread=2, low=1)
    assert [each.count for each in dimension.phases] == counts
