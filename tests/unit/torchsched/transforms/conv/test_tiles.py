"""Tiles follow from channels, places and registers by arithmetic alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torchsched.transforms.conv.taps import Dimension
from torchsched.transforms.conv.tiles import Channels, Tile, Wanted, choose_tile


def chosen(inputs: int, outputs: int, out: int, *, kernel: int = 3, spread: int = 1) -> Tile:
    row = Dimension(out=out, inside=out // spread, kernel=kernel, spread=spread, low=1)
    return choose_tile(Channels(inputs, outputs), [row], (16, 32))[0]


def test_sums_fill_three_quarters_of_the_registers() -> None:
    assert chosen(64, 128, 4096) == Tile(places=12, vectors=2, lanes=16)
    narrow = choose_tile(Channels(64, 128), [Dimension(4096, 4096, 3, low=1)], (8, 16))[0]
    assert narrow.places * narrow.vectors + narrow.vectors < 16


def test_places_divide_a_short_row() -> None:
    assert chosen(32, 64, 20).places == 10
    assert chosen(32, 64, 9).places == 9


def test_few_channels_leave_room_for_the_phases() -> None:
    assert chosen(8, 8, 96, spread=2).phases == 2
    assert chosen(32, 64, 96, spread=2).phases == 1
    assert chosen(8, 8, 96).lanes == 8


def test_what_is_asked_for_is_taken_as_far_as_there_is_room() -> None:
    row = Dimension(out=62, inside=64, kernel=3)
    for places, vectors in [(4, 1), (5, 4), (12, 0), (0, 3)]:
        tile, _ = choose_tile(Channels(64, 128), [row], (16, 32), Wanted(places, vectors))
        assert places in (0, tile.places)
        assert vectors in (0, tile.vectors)
    small, _ = choose_tile(Channels(64, 16), [Dimension(3, 5, 3)], (16, 32), Wanted(8, 4))
    assert small.places == 3
    assert small.vectors * small.lanes <= 16


@given(
    st.integers(1, 64),
    st.integers(1, 200),
    st.integers(1, 60),
    st.integers(1, 7),
    st.integers(1, 5),
    st.sampled_from([(16, 32), (8, 16), (4, 32), (4, 16)]),
)
def test_every_tile_can_be_written(
    inputs: int, outputs: int, out: int, kernel: int, spread: int, machine: tuple[int, int]
) -> None:
    row = Dimension(out=out, inside=max(out // spread, 1), kernel=kernel, spread=spread, low=kernel - 1)
    tile, cost = choose_tile(Channels(inputs, outputs), [row], machine)
    assert 1 <= tile.places <= row.turns
    assert tile.places * tile.vectors + tile.vectors < machine[1]
    assert tile.vectors == 1 or tile.vectors * tile.lanes <= outputs
    assert tile.phases in (1, spread)
    assert tile.phases * tile.channels(outputs) <= tile.vectors * tile.lanes
    assert cost > 0
