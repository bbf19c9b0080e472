"""Stores sums in rows of the result: phases of a transposed convolution lie there in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from torchsched.transforms.gemm.emit import Emitter, Index, Value

__all__ = ["Rows", "interleaved", "stored"]

Store = Callable[[Index, Index, Value, "Value | None", Value], Value]
"""Stores a vector: takes channel, place, vector, mask and the tensor; gives that, written."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one block of channels, in which every phase of a row waits for the others."""

    phases: int
    channels: int
    turns: int
    """Places of a phase."""
    out: int
    """Places of the result's row."""
    lanes: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the tensor: with room for what the last tile writes beyond its places."""
        return (self.phases, self.channels, -(-self.turns // self.lanes) * self.lanes + self.lanes)

    def join(self, e: Emitter, rows: Value, out: Value, store: Store) -> Value:
        """Write the phases' places in turns into ``out``."""

        def channel(number: Index, out: Value) -> list[Value]:
            return e.carry((0, self.turns, self.lanes), [out], partial(places, number))

        def places(number: Index, first: Index, out: Value) -> list[Value]:
            vectors = [e.read(rows, [phase, number, first], self.lanes) for phase in range(self.phases)]
            begin = e.mul(first, self.phases)
            return [
                stored(
                    e, interleaved(e, vectors), (begin, e.sub(self.out, begin)), partial(store, number), out
                )
            ]

        return e.carry((0, self.channels, 1), [out], channel)[0]


def interleaved(e: Emitter, vectors: Sequence[Value]) -> list[Value]:
    """Give the first numbers of all vectors, then the second ones, and so on, as as many vectors as there are."""
    count, lanes = len(vectors), vectors[0].type.shape[0]
    found = []
    for part in range(count):
        places = range(part * lanes, (part + 1) * lanes)
        now = vectors[0]
        for number in range(1, count):
            order = [
                place // count
                if place % count == 0 and number == 1
                else lanes + place // count
                if place % count == number
                else lane
                for lane, place in enumerate(places)
            ]
            now = e.vector.shuffle(now, vectors[number], order)
        found.append(now)
    return found


def stored(
    e: Emitter,
    vectors: Sequence[Value],
    run: tuple[Index, Index],
    store: Callable[[Index, Value, Value | None, Value], Value],
    out: Value,
) -> Value:
    """Store neighbouring vectors from a place on, and of them only so many places as are given."""
    first, count = run
    for number, vector in enumerate(vectors):
        lanes = vector.type.shape[0]
        left = e.sub(count, number * lanes)
        if isinstance(left, int) and left <= 0:
            break
        mask = None if isinstance(left, int) and left >= lanes else e.mask(lanes, left)
        out = store(e.add(first, number * lanes), vector, mask, out)
    return out
