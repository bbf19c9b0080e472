"""The loops around the innermost one: which block is packed when, and which thread computes which tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from torchsched.transforms.gemm.blocks import Blocks
from torchsched.transforms.gemm.emit import Emitter, Index, Slice, Value
from torchsched.transforms.gemm.microkernel import Panel, multiply
from torchsched.transforms.gemm.packing import Block, pack
from torchsched.transforms.gemm.product import Place, Product
from torchsched.transforms.gemm.sharing import Space, over_batches, part_of
from torchsched.transforms.gemm.tile import Tile, store

__all__ = ["emit_blocked"]

Range = tuple[Index, Index]


def emit_blocked(e: Emitter, product: Product, blocks: Blocks) -> Value:
    """Write a product's loops; give its results."""
    return _Nest(e, product, blocks).emit()


class _Nest:
    """Writes the loops of one product; ranges are of tiles: panels of rows, panels of columns."""

    def __init__(self, e: Emitter, product: Product, blocks: Blocks) -> None:
        self.e, self.product, self.blocks = e, product, blocks
        self.contraction = product.contraction
        self.lhs, self.rhs = product.layouts(blocks)
        self.k = product.shape.k
        self.wide = min(blocks.nc // blocks.nr, self.rhs.panels)
        tall = min(blocks.mc // blocks.mr, self.lhs.panels)
        self.rows_space = Space(tuple(self.lhs.shape(tall)), product.unit)
        self.columns_space = Space(tuple(self.rhs.shape(self.wide)), product.unit)
        self.tile_space = Space((blocks.mr, blocks.nr), self.contraction.element)
        # Sums that wait for the next block of steps lie in the result if they fit its type.
        self.waits_apart = self.k > blocks.kc and product.result_element != self.contraction.element

    def emit(self) -> Value:
        """Write everything."""
        inside = self.blocks.inside
        spaces = [(self.columns_space, 1), (self.rows_space, inside), (self.tile_space, inside)]
        if self.waits_apart:
            spaces.append((self._sums_space(), 1))
        return over_batches(self.e, self.product, self.blocks.over_batches, spaces, self._one)

    def _sums_space(self) -> Space:
        shape = zip(self.contraction.out, self.product.contraction.shape, strict=True)
        return Space(tuple(size for axis, size in shape if axis in ("m", "n")), self.contraction.element)

    def _one(self, at: Mapping[str, Index], spaces: Sequence[Value], places: Sequence[Place]) -> list[Value]:
        """Compute one product: blocks of columns, and in them blocks of steps."""
        e = self.e
        axes = tuple(axis for axis in self.contraction.out if axis in ("m", "n"))
        homes = [places[0], Place(spaces[3], axes, {})] if self.waits_apart else [places[0]]

        def columns(first: Index, *values: Value) -> list[Value]:
            panels = (first, e.least(e.add(first, self.wide), self.rhs.panels))
            return e.carry((0, self.k, self.blocks.kc), values, partial(steps, panels))

        def steps(panels: Range, step: Index, *values: Value) -> list[Value]:
            block = Block(panels, panels[0], step, e.least(self.blocks.kc, e.sub(self.k, step)), at)
            packed = self._pack_columns(block, values[0])
            now = [replace(home, value=value) for home, value in zip(homes, values[3:], strict=True)]
            return [packed, *self._all_tiles(block, packed, values[1:3], now)]

        begin = [*spaces[:3], *(home.value for home in homes)]
        done = e.carry((0, self.rhs.panels, self.wide), begin, columns)
        return [*done[:3], *done[4:], done[3]]

    def _pack_columns(self, block: Block, into: Value) -> Value:
        """Pack a block of the right operand, all threads together."""
        e, operand, layout = self.e, self.contraction.rhs, self.rhs
        if self.blocks.inside == 1:
            return pack(e, operand, layout, block, into)

        def worker(numbers: Sequence[Index], outs: Sequence[Value]) -> list[Slice]:
            lower, upper = part_of(e, block.panels, numbers[0], self.blocks.inside)
            offsets = [e.sub(lower, block.first), 0, 0]
            sizes = [e.sub(upper, lower), *self.columns_space.shape[1:]]
            mine = replace(block, panels=(lower, upper), first=lower)
            part = e.slice(outs[0], offsets, sizes)
            return [(pack(e, operand, layout, mine, part), offsets, sizes)]

        return e.forall([self.blocks.inside], [into], worker)[0]

    def _all_tiles(
        self, block: Block, packed: Value, spaces: Sequence[Value], homes: Sequence[Place]
    ) -> list[Value]:
        """Compute a block of columns for all rows, each thread its part."""
        e, blocks = self.e, self.blocks
        everything = (0, self.lhs.panels), block.panels
        if blocks.inside == 1:
            return self._tiles(block, packed, everything, [*spaces, *homes])

        def worker(numbers: Sequence[Index], outs: Sequence[Value]) -> list[Slice]:
            rows = part_of(e, everything[0], numbers[0], blocks.over_rows)
            columns = part_of(e, everything[1], numbers[1], blocks.over_columns)
            number = e.add(e.mul(numbers[0], blocks.over_columns), numbers[1])
            own = [
                space.copy_of(e, copies, number)
                for space, copies in zip((self.rows_space, self.tile_space), outs, strict=False)
            ]
            parts = [
                self._part(replace(home, value=out), rows, columns, block.at)
                for home, out in zip(homes, outs[2:], strict=True)
            ]
            begin = [*(value for value, *_ in own), *(place for place, *_ in parts)]
            done = self._tiles(block, packed, (rows, columns), begin)
            where = [(offsets, sizes) for _, offsets, sizes in (*own, *parts)]
            return [(value, at, size) for value, (at, size) in zip(done, where, strict=True)]

        begin = [*spaces, *(home.value for home in homes)]
        return e.forall([blocks.over_rows, blocks.over_columns], begin, worker)

    def _part(
        self, home: Place, rows: Range, columns: Range, at: Mapping[str, Index]
    ) -> tuple[Place, list[Index], list[Index]]:
        """Take what some panels of rows and of columns have in a tensor of results."""
        e = self.e
        origin: dict[str, Index] = {}
        sizes: dict[str, Index] = {}
        for layout, (lower, upper) in ((self.lhs, rows), (self.rhs, columns)):
            origin[layout.axis] = e.mul(lower, layout.tile)
            end = e.least(e.mul(upper, layout.tile), layout.size)
            sizes[layout.axis] = e.sub(end, origin[layout.axis])
        offsets = [origin[axis] if axis in origin else at.get(axis, 0) for axis in home.axes]
        extents = [sizes.get(axis, 1) for axis in home.axes]
        kept = tuple(axis for axis in home.axes if axis in origin)
        dropped = [number for number, axis in enumerate(home.axes) if axis not in origin]
        value = e.slice(home.value, offsets, extents, drop=dropped)
        return Place(value, kept, origin), offsets, extents

    def _tiles(
        self, block: Block, packed: Value, ranges: tuple[Range, Range], begin: Sequence[Value | Place]
    ) -> list[Value]:
        """Compute a range of tiles: blocks of rows are packed, and every panel of columns meets their panels."""
        e = self.e
        (first_row, last_row), (first_column, last_column) = ranges
        tall = self.rows_space.shape[0]
        homes = [each for each in begin if isinstance(each, Place)]

        def rows(first: Index, mine: Value, *values: Value) -> list[Value]:
            panels = (first, e.least(e.add(first, tall), last_row))
            own = replace(block, panels=panels, first=first)
            mine = pack(e, self.contraction.lhs, self.lhs, own, mine)

            def column(number: Index, *values: Value) -> list[Value]:
                return e.carry((*panels, 1), values, partial(tile, number))

            def tile(column: Index, row: Index, scratch: Value, *values: Value) -> list[Value]:
                left = Panel(mine, self.lhs, e.sub(row, first))
                right = Panel(packed, self.rhs, e.sub(column, block.first))
                now = [replace(home, value=value) for home, value in zip(homes, values, strict=True)]
                return self._tile(block, (left, right), (row, column), scratch, now)

            return [mine, *e.carry((first_column, last_column, 1), values, column)]

        values = [each.value if isinstance(each, Place) else each for each in begin]
        return e.carry((first_row, last_row, tall), values, rows)

    def _tile(
        self,
        block: Block,
        panels: tuple[Panel, Panel],
        numbers: tuple[Index, Index],
        scratch: Value,
        homes: Sequence[Place],
    ) -> list[Value]:
        e = self.e
        vector = e.vector_type(self.rhs.lanes, self.contraction.element)
        zeros = [e.zeros(vector)] * (self.blocks.mr * self.blocks.nr // self.rhs.lanes)
        sums = multiply(e, panels, block.steps, zeros)
        at = {**block.at, "m": e.mul(numbers[0], self.blocks.mr), "n": e.mul(numbers[1], self.blocks.nr)}
        end = e.add(block.step, block.steps)
        tile = Tile(
            self.product,
            self.blocks,
            at,
            first=e.at_most(block.step, 0) if self.k > self.blocks.kc else True,
            last=e.at_most(self.k, end) if self.k > self.blocks.kc else True,
        )
        return store(e, tile, sums, scratch, homes)
