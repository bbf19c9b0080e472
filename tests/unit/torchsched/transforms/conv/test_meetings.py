"""A tile at the end of a row meets the taps that read the input, and no others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torchsched.transforms.conv.meetings import ends_apart, runs_of
from torchsched.transforms.conv.taps import Dimension


@given(
    st.integers(1, 12),
    st.integers(1, 8),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(-3, 9),
    st.integers(0, 9),
    st.integers(1, 12),
)
def test_runs_have_each_place_and_tap_that_meet_the_input_once(
    inside: int, kernel: int, stride: int, dilation: int, low: int, begin: int, places: int
) -> None:
    row = Dimension(begin + places, inside, kernel, stride, dilation, low=low)
    found = [
        (place, tap)
        for (first, end), met in runs_of(row, begin, places)
        for tap in range(first, end)
        for place in met
    ]
    wanted = [
        (place, tap)
        for place in range(places)
        for tap in range(kernel)
        if 0 <= (begin + place) * stride + tap * dilation - low < inside
    ]
    assert sorted(found) == wanted


def test_ends_are_apart_where_margins_cost_something() -> None:
    assert ends_apart(Dimension(out=20, inside=16, kernel=5, low=4))
    assert not ends_apart(Dimension(out=64, inside=64, kernel=3, low=1))
    assert not ends_apart(Dimension(out=16, inside=20, kernel=5))
    assert not ends_apart(Dimension(out=40, inside=20, kernel=5, spread=2, low=4))
    assert not ends_apart(Dimension(out=40, inside=20, kernel=21, low=20))
