"""What becomes of a tile's sums: kept for the next block of steps, or finished and stored, with edges cut off.

A tile that lies in the result as a whole goes there from registers. One at an edge, or one that a long elementwise
operation finishes, goes by way of a tile of memory of its own, a row at a time: so the operation is in the code
once, and what it calls finds no registers full of sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchsched.transforms.gemm.blocks import Blocks
from torchsched.transforms.gemm.emit import Emitter, Index, Value
from torchsched.transforms.gemm.product import Place, Product

__all__ = ["Tile", "store"]


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of sums."""

    product: Product
    blocks: Blocks
    at: Mapping[str, Index]
    """The loops' indices of its first sum."""
    first: Any
    """Whether these are the first steps of the sums; a condition known now or when it runs."""
    last: Any
    """Whether they are the last."""

    @property
    def lanes(self) -> int:
        """Sums in a vector."""
        return self.product.numbers.lanes

    def cell(self, e: Emitter, row: Index, column: int) -> dict[str, Index]:
        """The loops' indices of one of its sums."""
        return {**self.at, "m": e.add(self.at["m"], row), "n": e.add(self.at["n"], column)}

    def is_whole(self, e: Emitter) -> bool | Value:
        """Whether all of it lies in the result."""
        shape, blocks = self.product.shape, self.blocks
        rows = shape.m % blocks.mr == 0 or e.at_most(e.add(self.at["m"], blocks.mr), shape.m)
        columns = shape.n % blocks.nr == 0 or e.at_most(e.add(self.at["n"], blocks.nr), shape.n)
        return e.both(rows, columns)


@dataclass(frozen=True, slots=True)
class _Way:
    """Where sums come from, where they go, and whether they are finished on the way."""

    before: Place
    """What they were after the steps before these."""
    into: Place
    finish: bool


def store(
    e: Emitter, tile: Tile, sums: Sequence[Value], scratch: Value, homes: Sequence[Place]
) -> list[Value]:
    """Write the way of a tile's sums to memory; give ``scratch`` and the homes' tensors, written.

    Args:
        e: Writes.
        tile: Which tile it is.
        sums: Its vectors, row by row.
        scratch: A tile of memory.
        homes: The result, and where sums wait if not there.
    """
    types = [scratch.type, *(home.value.type for home in homes)]

    def finish() -> list[Value]:
        way = _Way(homes[-1], homes[0], finish=True)
        scratch_, value = _store(e, tile, sums, scratch, way)
        return [scratch_, value, *(home.value for home in homes[1:])]

    def keep() -> list[Value]:
        way = _Way(homes[-1], homes[-1], finish=False)
        scratch_, value = _store(e, tile, sums, scratch, way)
        return [scratch_, *(home.value for home in homes[:-1]), value]

    return e.branch(tile.last, types, finish, keep)


def _store(e: Emitter, tile: Tile, sums: Sequence[Value], scratch: Value, way: _Way) -> list[Value]:
    def straight() -> list[Value]:
        return [scratch, _store_whole(e, tile, sums, way)]

    def by_rows() -> list[Value]:
        return _store_rows(e, tile, sums, scratch, way)

    if way.finish and tile.product.epilogue is not None and not tile.product.epilogue.small:
        return by_rows()
    return e.branch(tile.is_whole(e), [scratch.type, way.into.value.type], straight, by_rows)


def _store_whole(e: Emitter, tile: Tile, sums: Sequence[Value], way: _Way) -> Value:
    columns = range(0, tile.blocks.nr, tile.lanes)
    cells = [tile.cell(e, row, column) for row in range(tile.blocks.mr) for column in columns]
    out = way.into.value
    for vector, at in zip(_complete(e, tile, sums, way, [(at, None) for at in cells]), cells, strict=True):
        if way.finish:
            vector = tile.product.finished(e, vector, at)
        out = e.write(vector, out, way.into.indices(e, at))
    return out


def _store_rows(e: Emitter, tile: Tile, sums: Sequence[Value], scratch: Value, way: _Way) -> list[Value]:
    columns = range(0, tile.blocks.nr, tile.lanes)
    for number, vector in enumerate(sums):
        row, column = divmod(number, len(columns))
        scratch = e.write(vector, scratch, [row, column * tile.lanes])
    shape = tile.product.shape

    def line(row: Index, out: Value) -> list[Value]:
        cells = []
        for column in columns:
            at = tile.cell(e, row, column)
            cut = shape.n % tile.blocks.nr != 0
            cells.append((at, e.mask(tile.lanes, e.sub(shape.n, at["n"])) if cut else None))
        now = [e.read(scratch, [row, column], tile.lanes) for column in columns]
        before = replace(way.before, value=out) if way.before.value == way.into.value else way.before
        now = _complete(e, tile, now, replace(way, before=before), cells)
        for vector, (at, mask) in zip(now, cells, strict=True):
            if way.finish:
                vector = tile.product.finished(e, vector, at, mask)
            out = e.write(vector, out, way.into.indices(e, at), mask)
        return [out]

    height = e.least(tile.blocks.mr, e.sub(shape.m, tile.at["m"]))
    return [scratch, *e.carry((0, height, 1), [way.into.value], line)]


def _complete(
    e: Emitter,
    tile: Tile,
    sums: Sequence[Value],
    way: _Way,
    cells: Sequence[tuple[Mapping[str, Index], Value | None]],
) -> list[Value]:
    """Add what the sums were before these steps: nothing, what the product begins with, or what was kept."""
    types = [vector.type for vector in sums]
    initial = tile.product.contraction.initial
    if tile.first is True and initial is None:
        return list(sums)

    def begin() -> list[Value]:
        if initial is None:
            return [e.zeros(type_) for type_ in types]
        return [tile.product.initial(e, at, tile.lanes, mask) for at, mask in cells]

    def resume() -> list[Value]:
        return [e.read(way.before.value, way.before.indices(e, at), tile.lanes, mask) for at, mask in cells]

    before = e.branch(tile.first, types, begin, resume)
    return [e.plus(sum_, other) for sum_, other in zip(sums, before, strict=True)]
