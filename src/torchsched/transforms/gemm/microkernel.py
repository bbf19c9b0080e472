"""The innermost loop: a tile of sums kept in registers while the steps go by.

Each step reads a row of the right panel as vectors and each number of the left panel once, and does
``mr * nr / lanes`` multiply-adds; nothing else is in the loop. Knows nothing of the loops outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchsched.bindings import bindings
from torchsched.transforms.gemm.emit import Emitter, Index, Value
from torchsched.transforms.gemm.packing import Layout, rounded

__all__ = ["Panel", "add_products", "multiply"]


@dataclass(frozen=True, slots=True)
class Panel:
    """A packed operand, and the panel of it that a tile reads."""

    value: Value
    layout: Layout
    number: Index

    def place(self, e: Emitter, step: Index, row: int) -> list[Index]:
        """Where it has a row at a step, or at the pair of steps that this one begins."""
        return self.layout.indices(e, self.number, step, row)


def multiply(e: Emitter, panels: tuple[Panel, Panel], steps: Index, sums: Sequence[Value]) -> list[Value]:
    """Write the loop that adds ``steps`` products to each of ``sums``, a tile's vectors row by row."""
    lhs, _ = panels
    stride = lhs.layout.stride

    def turn(step: Index, *sums: Value) -> list[Value]:
        now = list(sums)
        for ahead in range(0, stride, lhs.layout.pair):
            now = _step(e, panels, e.add(step, ahead), now)
        return now

    return e.carry((0, rounded(e, steps, stride), stride), sums, turn)


def _step(e: Emitter, panels: tuple[Panel, Panel], step: Index, sums: Sequence[Value]) -> list[Value]:
    lhs, rhs = panels
    lanes = rhs.layout.lanes
    factors = lanes * rhs.layout.pair
    columns = [
        e.recast(e.read(rhs.value, rhs.place(e, step, column), lanes), factors, rhs.layout.element)
        for column in range(0, rhs.layout.tile, lanes)
    ]
    after = []
    for row in range(lhs.layout.tile):
        unit = e.read(lhs.value, lhs.place(e, step, row), 1)
        number = e.recast(e.splat(unit, lanes), factors, lhs.layout.element)
        for each, column in enumerate(columns):
            after.append(add_products(e, sums[row * len(columns) + each], number, column))
    return after


def add_products(e: Emitter, total: Value, a: Value, b: Value) -> Value:
    """Add the products of two vectors to sums: one product to each, or those of a pair of neighbours."""
    if a.type == total.type:
        return e.multiply_add(a, b, total)
    return bindings("dialects.x86").avx512_dot(total, a, b)
