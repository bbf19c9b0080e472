"""Copies an operand into panels: the order in which the innermost loop reads it, with the edges filled up.

A panel holds ``tile`` rows of the left operand, or ``tile`` columns of the right one, for a block of the sum's
steps; "row" means either here. The right operand is read as vectors: the numbers of one step lie together,
``[step][row]``. The left one is read number by number, and may lie ``[row][step]`` where it comes so. Where an
instruction adds the products of a pair of steps at once, the pair lies there as one number of twice the width.

Rows beyond the operand's last are zero or repeat it: they meet only results that are thrown away. Steps beyond the
block's last are zero in both operands. Knows nothing of the loops outside a panel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torchsched.transforms.gemm.emit import Emitter, Index, Value
from torchsched.transforms.gemm.operands import Operand

__all__ = ["Block", "Layout", "pack", "rounded"]


_LINE_BITS = 512
"""Of a cache line."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How an operand is packed."""

    axis: str
    """The loop over its rows: ``m`` or ``n``."""
    size: int
    """The turns of that loop."""
    tile: int
    """Rows of a panel."""
    depth: int
    """Steps that a panel has room for; a multiple of ``lanes * pair`` and of ``stride``."""
    lanes: int
    """Sums in a vector."""
    element: Any
    """The type that is multiplied; wider than the operand's where products are computed in the wider one."""
    unit: Any
    """The type that is stored: ``element``, or an integer that holds a pair of them."""
    stride: int = 1
    """Steps that are read in one turn; those that the block lacks are zero."""
    pair: int = 1
    """Neighbouring steps that lie together."""
    by_rows: bool = False
    """Whether the steps of one row lie together, rather than the rows of one step; the operand must have it so."""

    @property
    def panels(self) -> int:
        """How many panels the operand makes."""
        return -(-self.size // self.tile)

    @property
    def full_panels(self) -> int:
        """How many of them the operand fills."""
        return self.size // self.tile

    def shape(self, panels: int) -> list[int]:
        """The shape of a tensor of so many panels."""
        turns = self.depth // self.pair
        if not self.by_rows:
            return [panels, turns, self.tile]
        # Rows an odd number of cache lines apart lie in different sets of a cache; 4096 bytes apart they all lie in
        # one, which has 8 or 12 lines.
        line = max(1, _LINE_BITS // self.unit.width)
        lines = -(-turns // line) | 1
        return [panels, self.tile, lines * line]

    def indices(self, e: Emitter, panel: Index, step: Index, row: Index) -> list[Index]:
        """Where the packed tensor has a row of a panel, at a step or at the pair of steps that it begins."""
        turn = e.div(step, self.pair)
        return [panel, row, turn] if self.by_rows else [panel, turn, row]


@dataclass(frozen=True, slots=True)
class Block:
    """The part of an operand that is packed at once."""

    panels: tuple[Index, Index]
    """From which of the operand's panels up to which."""
    first: Index
    """The panel that the packed tensor begins with."""
    step: Index
    """The first step of the sum."""
    steps: Index
    """How many steps."""
    at: Mapping[str, Index]
    """The index of each batch loop."""


@dataclass(frozen=True, slots=True)
class _Source:
    """What is packed."""

    operand: Operand
    layout: Layout
    block: Block


@dataclass(frozen=True, slots=True)
class _Panel:
    """One panel to fill: what from, which, and whether the operand ends within it."""

    of: _Source
    number: Index
    edge: bool

    @property
    def layout(self) -> Layout:
        """How it is packed."""
        return self.of.layout

    def read(self, e: Emitter, place: tuple[Index, Index], lanes: int, mask: Value | None) -> Value:
        """Read neighbours from a row and a step on; give them in the type that is multiplied."""
        operand = self.of.operand
        return e.convert(e.read(operand.value, self._source(e, *place), lanes, mask), self.layout.element)

    def _source(self, e: Emitter, row: Index, step: Index) -> list[Any]:
        """Where the operand has a row of this panel, at a step of this block."""
        index = e.add(e.mul(self.number, self.layout.tile), row)
        # Vectors along the rows switch off what is beyond the last row; along the steps that row is taken again.
        operand, block = self.of.operand, self.of.block
        if self.edge and operand.contiguous == "k":
            index = e.least(index, self.layout.size - 1)
        return operand.places({**block.at, self.layout.axis: index, "k": e.add(block.step, step)})

    def rows_left(self, e: Emitter, row: int) -> Index:
        """How many rows the operand has from ``row`` of this panel on."""
        return e.sub(self.layout.size, e.add(e.mul(self.number, self.layout.tile), row))

    def target(self, e: Emitter, row: Index, step: Index) -> list[Index]:
        """Where the packed tensor has it."""
        return self.layout.indices(e, e.sub(self.number, self.of.block.first), step, row)


def rounded(e: Emitter, steps: Index, multiple: int) -> Index:
    """Give the smallest multiple that is at least ``steps``."""
    return e.mul(e.div(e.add(steps, multiple - 1), multiple), multiple)


def pack(e: Emitter, operand: Operand, layout: Layout, block: Block, into: Value) -> Value:
    """Write the loops that fill ``into`` with ``block``; give the filled tensor."""
    write = _pack_steps
    if operand.contiguous == "k":
        write = _pack_rows if layout.by_rows else _pack_squares
    return write(e, _Source(operand, layout, block), into)


def _each_panel(e: Emitter, source: _Source, out: Value, fill: Callable[[_Panel, Value], Value]) -> Value:
    """Call ``fill`` for each panel, in one loop for those without an edge and one for the last.

    What has no edge is copied without masks: a processor without masked loads does those one by one.
    """
    layout, (lower, upper) = source.layout, source.block.panels
    parts = [(lower, e.least(upper, layout.full_panels), False)]
    if layout.full_panels < layout.panels:
        parts.append((e.most(lower, layout.full_panels), upper, True))
    for begin, end, edge in parts:

        def turn(number: Index, out: Value, edge: bool = edge) -> list[Value]:
            return [fill(_Panel(source, number, edge), out)]

        (out,) = e.carry((begin, end, 1), [out], turn)
    return out


# --- an operand whose rows lie side by side in memory ---------------------------------------------

_TOGETHER = 16
"""Steps that are copied for all panels before the next ones: as many lines of memory are read along, side by side.

Copied a panel at a time, the operand would be read in pieces of a panel's width, each in another page.
"""


def _pack_steps(e: Emitter, source: _Source, out: Value) -> Value:
    layout, steps = source.layout, source.block.steps
    pair = layout.pair
    even = e.mul(e.div(steps, pair), pair)

    def together(first: Index, out: Value) -> list[Value]:
        bounds = (first, e.least(e.add(first, _TOGETHER), even), pair)

        def fill(panel: _Panel, out: Value) -> Value:
            return e.carry(bounds, [out], lambda step, out: [_copy_step(e, panel, step, pair, out)])[0]

        return [_each_panel(e, source, out, fill)]

    (out,) = e.carry((0, even, _TOGETHER), [out], together)

    def alone(step: Index, out: Value) -> list[Value]:
        return [_each_panel(e, source, out, lambda panel, out: _copy_step(e, panel, step, 1, out))]

    if pair > 1:
        (out,) = e.carry((even, steps, pair), [out], alone)

    def clear(step: Index, out: Value) -> list[Value]:
        return [_each_panel(e, source, out, lambda panel, out: _clear_step(e, panel, step, out))]

    return e.carry((rounded(e, steps, pair), rounded(e, steps, layout.stride), pair), [out], clear)[0]


def _copy_step(e: Emitter, panel: _Panel, step: Index, present: int, out: Value) -> Value:
    """Copy a step, or a pair of them of which ``present`` are there."""
    layout = panel.layout
    for row in range(0, layout.tile, layout.lanes):
        rows = min(layout.lanes, layout.tile - row)
        vectors = [_read_rows(e, panel, row, rows, e.add(step, each)) for each in range(present)]
        vectors += [e.zeros(vectors[0].type)] * (layout.pair - present)
        vector = vectors[0] if layout.pair == 1 else e.vector.interleave(*vectors)
        vector = e.recast(vector, vector.type.shape[0] // layout.pair, layout.unit)
        out = e.write(e.front(vector, rows), out, panel.target(e, row, step))
    return out


def _read_rows(e: Emitter, panel: _Panel, row: int, rows: int, step: Index) -> Value:
    """Read ``rows`` numbers of a step, and convert them to the type that is multiplied."""
    layout = panel.layout
    # LLVM 22 aborts on some bf16 vectors of odd length ("do not know how to soft promote"): a whole one is read.
    odd = panel.of.operand.element != layout.unit or rows == 1
    lanes = layout.lanes if odd else rows
    left: Index = panel.rows_left(e, row) if panel.edge else rows
    mask = e.mask(lanes, e.least(left, rows)) if panel.edge or rows < lanes else None
    return panel.read(e, (row, step), lanes, mask)


def _clear_step(e: Emitter, panel: _Panel, step: Index, out: Value) -> Value:
    layout = panel.layout
    for row in range(0, layout.tile, layout.lanes):
        blank = e.zeros(e.vector_type(min(layout.lanes, layout.tile - row), layout.unit))
        out = e.write(blank, out, panel.target(e, row, step))
    return out


# --- an operand whose steps lie side by side in memory --------------------------------------------


def _pack_rows(e: Emitter, source: _Source, out: Value) -> Value:
    """Copy the rows one by one."""
    layout = source.layout
    width = layout.lanes * layout.pair

    def fill(panel: _Panel, out: Value) -> Value:
        def line(row: Index, out: Value) -> list[Value]:
            def piece(step: Index, mask: Value | None, out: Value) -> Value:
                vector = panel.read(e, (row, step), width, mask)
                return e.write(e.recast(vector, layout.lanes, layout.unit), out, panel.target(e, row, step))

            return [_along_steps(e, source, out, piece)]

        return e.carry((0, layout.tile, 1), [out], line)[0]

    return _each_panel(e, source, out, fill)


def _pack_squares(e: Emitter, source: _Source, out: Value) -> Value:
    """Read as many steps of as many rows as a vector has lanes, and write the columns of that square."""
    layout = source.layout

    whole = layout.tile // layout.lanes * layout.lanes

    def fill(panel: _Panel, out: Value) -> Value:
        def rows(count: int, row: Index, out: Value) -> list[Value]:
            return [_along_steps(e, source, out, partial(_copy_square, e, panel, row, count))]

        # Loops rather than copies of the code: bufferisation's time doubles with every loop that follows another.
        (out,) = e.carry((0, whole, layout.lanes), [out], partial(rows, layout.lanes))
        return e.carry((whole, layout.tile, layout.lanes), [out], partial(rows, layout.tile - whole))[0]

    return _each_panel(e, source, out, fill)


def _along_steps(
    e: Emitter, source: _Source, out: Value, piece: Callable[[Index, Value | None, Value], Value]
) -> Value:
    """Call ``piece`` for each vector of steps; of the last one, only what the block has is switched on."""
    width, steps = source.layout.lanes * source.layout.pair, source.block.steps
    whole = e.mul(e.div(steps, width), width)
    (out,) = e.carry((0, whole, width), [out], lambda step, out: [piece(step, None, out)])

    def rest(step: Index, out: Value) -> list[Value]:
        return [piece(step, e.mask(width, e.sub(steps, step)), out)]

    return e.carry((whole, steps, width), [out], rest)[0]


def _copy_square(
    e: Emitter, panel: _Panel, row: Index, count: int, step: Index, mask: Value | None, out: Value
) -> Value:  # house: bound two by two, for the rows and for the steps
    layout = panel.layout
    lanes, pair = layout.lanes, layout.pair
    rows = []
    for each in range(count):
        numbers = panel.read(e, (e.add(row, each), step), lanes * pair, mask)
        rows.append(e.recast(numbers, lanes, layout.unit))
    rows += [rows[0]] * (lanes - count)  # a square needs them; nobody reads what becomes of them
    for each, column in enumerate(e.transpose(rows)):
        out = e.write(e.front(column, count), out, panel.target(e, row, e.add(step, each * pair)))
    return out
