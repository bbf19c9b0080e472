"""Chooses how a convolution's results are tiled in registers, and whether it is worth it; numbers only.

A tile is some neighbouring places of a row by some vectors of channels: every step reads a vector of weights for each
and one number for each place. So neither the stride nor the width of a row matters, and nothing is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kernelmark.mlir.transforms.conv.taps import Dimension

__all__ = ["Channels", "Tile", "choose_tile"]

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


def choose_tile(
    channels: Channels, dimensions: Sequence[Dimension], lanes: int, registers: int
) -> tuple[Tile, float]:
    """Choose the tile with the least cost; give it and its cost, in multiply-adds of whole vectors an image.

    Args:
        channels: Of a group.
        dimensions: The places, outermost first.
        lanes: Of a register.
        registers: Of a core.
    """
    last = dimensions[-1]
    outer = prod(each.products for each in dimensions[:-1]) * channels.inputs
    rows = prod(each.out for each in dimensions[:-1])
    best: tuple[float, Tile] | None = None
    for phases in _phases(channels, last, lanes):
        for width in [lanes] if phases > 1 else [lanes, lanes // 2, lanes // 4]:
            for vectors in range(1, 5 if phases == 1 else 2):
                if width < 4 or (vectors > 1 and vectors * width > channels.outputs):
                    continue
                blocks = 1 if phases > 1 else -(-channels.outputs // (vectors * width))
                for places in range(1, min(_PLACES, last.turns) + 1):
                    if places * vectors + vectors + 1 > registers:
                        continue
                    steps = last.products / max(last.out, 1)  # taps that an output of a row meets, on average
                    if phases > 1:
                        steps = _union(last)
                    work = max(places * vectors, places + vectors, _LATENCY) + _TURN
                    variants = 1 if phases > 1 else last.spread
                    tiles = -(-last.turns // places) * blocks * variants
                    cost = tiles * (outer * steps * work + rows * _STORE * vectors * width)
                    if best is None or cost < best[0]:
                        best = cost, Tile(places, vectors, width, phases)
    assert best is not None  # one place and one vector always fit
    return best[1], best[0]


def _phases(channels: Channels, last: Dimension, lanes: int) -> list[int]:
    """Phases that may lie side by side in a vector: one, or all where they and the channels fit into it."""
    if last.spread > 1 and last.shift_step == 1 and last.spread * channels.outputs <= lanes:
        return [1, last.spread]
    return [1]


def _union(last: Dimension) -> int:
    """Different places that the phases' taps read, for one turn."""
    least, largest = last.shifts
    return largest - least + 1
