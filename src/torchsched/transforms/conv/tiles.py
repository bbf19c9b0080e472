"""Chooses how a convolution's results are tiled in registers, and whether it is worth it; numbers only.

A tile is some neighbouring places of a row by some vectors of channels: every step reads a vector of weights for each
and one number for each place. So neither the stride nor the width of a row matters, and nothing is masked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from torchsched.transforms.conv.taps import Dimension

__all__ = ["Channels", "Tile", "Wanted", "choose_tile"]

_PLACES = 12
"""Places of a tile at most: more are more than sums fit into registers with two vectors of channels."""
_TURN = 1.5
"""What a turn of the innermost loop costs besides its multiply-adds, in multiply-adds."""
_LATENCY = 8
"""Multiply-adds under way at once in a core; a tile of fewer sums waits for them."""
_STORE = 5
"""What it costs to turn a vector of channels into places and to store it, in multiply-adds."""


@dataclass(frozen=True, slots=True)
class Channels:
    """Channels of a group."""

    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class Tile:
    """Results that are summed up at once."""

    places: int
    vectors: int
    lanes: int
    """Of a vector; half of a register's where channels are few."""
    phases: int = 1
    """Phases of the last dimension that lie side by side in a vector, each with all channels of a group."""

    def channels(self, outputs: int) -> int:
        """Channels that it has."""
        return outputs if self.phases > 1 else min(self.vectors * self.lanes, outputs)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for; 0 leaves the choice to :func:`choose_tile`."""

    places: int = 0
    vectors: int = 0


def choose_tile(
    channels: Channels,
    dimensions: Sequence[Dimension],
    machine: tuple[int, int],
    wanted: Wanted = Wanted(),
) -> tuple[Tile, float]:
    """Choose the tile with the least cost; give it and its cost, in multiply-adds of whole vectors an image.

    Args:
        channels: Of a group.
        dimensions: The places, outermost first.
        machine: Lanes of a register, and registers of a core.
        wanted: Sizes to take, as far as there are so many places, channels and registers.
    """
    costs = [
        (_cost(channels, dimensions, tile), number, tile)
        for number, tile in enumerate(_tiles(channels, dimensions[-1], machine))
    ]
    for name in ("vectors", "places"):
        size = getattr(wanted, name)
        most = max((getattr(tile, name) for _, _, tile in costs if getattr(tile, name) <= size), default=0)
        if most:
            costs = [each for each in costs if getattr(each[2], name) == most]
    cost, _, tile = min(costs)
    return tile, cost


def _tiles(channels: Channels, last: Dimension, machine: tuple[int, int]) -> Iterator[Tile]:
    """Give every tile that there are places, channels and registers for."""
    lanes, registers = machine
    for phases in _phases(channels, last, lanes):
        for width in (
            [lanes] if phases > 1 else [each for each in (lanes, lanes // 2, lanes // 4) if each >= 4]
        ):
            for vectors in range(1, 5):
                if vectors > 1 and (phases > 1 or vectors * width > channels.outputs):
                    continue
                for places in range(1, min(_PLACES, last.turns) + 1):
                    if places * vectors + vectors + 1 <= registers:
                        yield Tile(places, vectors, width, phases)


def _cost(channels: Channels, dimensions: Sequence[Dimension], tile: Tile) -> float:
    *outer, last = dimensions
    rows = prod(each.out for each in outer)
    taps = prod(each.products for each in outer)  # of all rows
    blocks = -(-channels.outputs // tile.channels(channels.outputs))
    # Taps that an output of a row meets: the average of the phases, or all that any of them has.
    steps = last.products / last.out if tile.phases == 1 else _union(last)
    variants = 1 if tile.phases > 1 else last.spread
    work = max(tile.places * tile.vectors, tile.places + tile.vectors, _LATENCY) + _TURN
    tiles = -(-last.turns // tile.places) * blocks * variants
    return tiles * (taps * channels.inputs * steps * work + rows * _STORE * tile.vectors * tile.lanes)


def _phases(channels: Channels, last: Dimension, lanes: int) -> list[int]:
    """Phases that may lie side by side in a vector: one, or all where they and the channels fit into it."""
    if last.spread > 1 and last.shift_step == 1 and last.spread * channels.outputs <= lanes:
        return [1, last.spread]
    return [1]


def _union(last: Dimension) -> int:
    """Different places that the phases' taps read, for one turn."""
    least, largest = last.shifts
    return largest - least + 1
