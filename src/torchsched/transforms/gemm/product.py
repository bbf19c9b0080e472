"""A product of matrices with everything decided that its loops need: operands, blocks, layouts, result.

Only data and what follows from it; :mod:`nest` and :mod:`thin` write the loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchsched.transforms.gemm.blocks import Blocks, Machine, Numbers, Shape
from torchsched.transforms.gemm.contraction import Contraction
from torchsched.transforms.gemm.emit import Emitter, Index, Value
from torchsched.transforms.gemm.epilogue import Epilogue, apply_epilogue
from torchsched.transforms.gemm.packing import Layout

__all__ = ["Place", "Product"]


@dataclass(frozen=True, slots=True)
class Product:
    """What is computed, and how."""

    contraction: Contraction
    epilogue: Epilogue | None
    """What is done to the finished sums."""
    numbers: Numbers
    machine: Machine
    factor: Any
    """The type that is multiplied: the operands', or that of the sums."""
    unit: Any
    """The type that operands are packed in: that, or an integer that holds a pair."""

    @property
    def shape(self) -> Shape:
        """Its sizes."""
        sizes = self.contraction.sizes
        return Shape(self.contraction.batches, sizes["m"], sizes["n"], sizes["k"])

    @property
    def root(self) -> Any:
        """The operation whose result the loops compute."""
        return (self.contraction if self.epilogue is None else self.epilogue).op

    @property
    def result_element(self) -> Any:
        """Its element type."""
        return self.root.results[0].type.element_type

    def layouts(self, blocks: Blocks) -> tuple[Layout, Layout]:
        """How the two operands are packed."""
        numbers, shape = self.numbers, self.shape
        return tuple(  # type: ignore[return-value]
            Layout(
                axis,
                size,
                tile,
                depth=blocks.kc,
                lanes=numbers.lanes,
                element=self.factor,
                unit=self.unit,
                stride=blocks.unroll * numbers.pair,
                pair=numbers.pair,
                by_rows=axis == "m" and self.contraction.lhs.contiguous == "k",
            )
            for axis, size, tile in (("m", shape.m, blocks.mr), ("n", shape.n, blocks.nr))
        )

    def initial(
        self, e: Emitter, at: Mapping[str, Index], lanes: int, mask: Value | None = None
    ) -> Value | None:
        """Give what the sums at ``at`` and their neighbours along the result's last axis begin with."""
        initial = self.contraction.initial
        if initial is None:
            return None
        if not hasattr(initial.type, "shape"):
            return e.splat(initial, lanes)
        return e.read(initial, [at.get(axis, 0) for axis in self.contraction.out], lanes, mask)

    def finished(self, e: Emitter, sums: Value, at: Mapping[str, Index], mask: Value | None = None) -> Value:
        """Give what is stored for the sums at ``at`` and their neighbours."""
        if self.epilogue is None:
            return sums
        return apply_epilogue(e, self.epilogue, sums, at, mask)


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor of results or of sums, or a part of one: its axes, and the loops' indices of its first element."""

    value: Value
    axes: tuple[str, ...]
    origin: Mapping[str, Index]

    def indices(self, e: Emitter, at: Mapping[str, Index]) -> list[Index]:
        """Where it has the element at ``at``."""
        return [e.sub(at.get(axis, 0), self.origin.get(axis, 0)) for axis in self.axes]
