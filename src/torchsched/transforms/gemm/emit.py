"""Writes what products of matrices need beside single loops: branches, parallel loops, slices, masks, transposes.

Extends the writer that the other transforms have; knows nothing of matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from torchsched.transforms.vectors.writing import Index, Writer

__all__ = ["Emitter", "Index", "Slice", "Value"]

Value: TypeAlias = Any
"""``torch_mlir.ir.Value``."""
Type: TypeAlias = Any
"""``torch_mlir.ir.Type``."""
Slice: TypeAlias = "tuple[Value, Sequence[Index], Sequence[Index]]"
"""What one turn of a parallel loop computed: a tile, and its offsets and sizes in the whole."""


class Emitter(Writer):
    """Writes operations; every method leaves the insertion point where it was."""

    def __init__(self) -> None:
        super().__init__()
        self.bool = self.ir.IntegerType.get_signless(1)

    # --- indices ---

    def mul(self, a: Index, b: Index) -> Index:
        """Give ``a * b``."""
        if isinstance(a, int):
            a, b = b, a
        return self.times(a, b) if isinstance(b, int) else self.arith.muli(a, b)

    def div(self, a: Index, b: int) -> Index:
        """Give ``a // b``; neither is negative."""
        if isinstance(a, int):
            return a // b
        return a if b == 1 else self.arith.divui(a, self.index(b))

    def rem(self, a: Index, b: int) -> Index:
        """Give ``a % b``; neither is negative."""
        return a % b if isinstance(a, int) else self.arith.remui(a, self.index(b))

    def most(self, a: Index, b: Index) -> Index:
        """Give the larger one."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.arith.maxsi(self.index(a), self.index(b))

    def at_most(self, a: Index, b: Index) -> bool | Value:
        """Give ``a <= b``."""
        if isinstance(a, int) and isinstance(b, int):
            return a <= b
        return self.arith.cmpi(self.arith.CmpIPredicate.sle, self.index(a), self.index(b))

    def both(self, a: bool | Value, b: bool | Value) -> bool | Value:
        """Give ``a and b``."""
        if isinstance(a, bool) or isinstance(b, bool):
            known, other = (a, b) if isinstance(a, bool) else (b, a)
            return other if known else False
        return self.arith.andi(a, b)

    # --- control ---

    def carry(
        self, bounds: tuple[Index, Index, int], carried: Sequence[Value], body: Callable[..., Sequence[Value]]
    ) -> list[Value]:
        """Write ``for i in range(*bounds)``; ``body(i, *carried)`` gives what the next turn gets."""
        return self.loop(*bounds, carried, lambda index, now: body(index, *now))

    def branch(
        self,
        condition: bool | Value,
        types: Sequence[Type],
        then: Callable[[], Sequence[Value]],
        otherwise: Callable[[], Sequence[Value]],
    ) -> list[Value]:
        """Write ``then() if condition else otherwise()``."""
        if isinstance(condition, bool):
            return list(then() if condition else otherwise())
        op = self.scf.IfOp(condition, list(types), has_else=True)
        for block, body in ((op.then_block, then), (op.else_block, otherwise)):
            with self.ir.InsertionPoint(block):
                self.scf.yield_(list(body()))
        return list(op.results)

    def forall(
        self,
        counts: Sequence[int],
        outs: Sequence[Value],
        body: Callable[[Sequence[Index], Sequence[Value]], Sequence[Slice]],
    ) -> list[Value]:
        """Write a parallel loop; ``body(indices, outs)`` gives one :data:`Slice` for each of ``outs``."""
        op = self.scf.ForallOp([0] * len(counts), list(counts), [1] * len(counts), list(outs))
        arguments = list(op.body.arguments)
        inner = arguments[len(counts) :]
        with self.ir.InsertionPoint(op.body):
            slices = body(arguments[: len(counts)], inner)
            ending = self.scf.InParallelOp()
            with self.ir.InsertionPoint(ending.regions[0].blocks[0]):
                for (tile, offsets, sizes), out in zip(slices, inner, strict=True):
                    self.tensor.parallel_insert_slice(tile, out, *self._slicing(offsets, sizes))
        return list(op.results)

    # --- tensors ---

    def slice(
        self, whole: Value, offsets: Sequence[Index], sizes: Sequence[Index], *, drop: Sequence[int] = ()
    ) -> Value:
        """Take a part of ``whole``; the dimensions ``drop``, of which it has one turn each, do not remain."""
        dynamic = self.ir.ShapedType.get_dynamic_size()
        kept = [size for number, size in enumerate(sizes) if number not in drop]
        shape = [size if isinstance(size, int) else dynamic for size in kept]
        result = self.tensor_type(shape, whole.type.element_type)
        return self.tensor.extract_slice(result, whole, *self._slicing(offsets, sizes))

    def _slicing(self, offsets: Sequence[Index], sizes: Sequence[Index]) -> tuple[list[Any], ...]:
        dynamic = self.ir.ShapedType.get_dynamic_size()
        parts: list[list[Any]] = []
        for given in (offsets, sizes, [1] * len(offsets)):
            parts.append([each for each in given if not isinstance(each, int)])
        for given in (offsets, sizes, [1] * len(offsets)):
            parts.append([each if isinstance(each, int) else dynamic for each in given])
        return tuple(parts)

    # --- vectors ---

    def zeros(self, type_: Type) -> Value:
        """Give a vector of zeros."""
        return self.vector.broadcast(type_, self.zero(type_.element_type))

    def mask(self, lanes: int, count: Index) -> Value:
        """Switch on the first ``count`` of ``lanes`` lanes; none for a negative count."""
        return self.vector.create_mask(self.vector_type(lanes, self.bool), [self.index(count)])

    def convert(self, value: Value, element: Type) -> Value:
        """Widen a number or a vector to ``element``, which holds each of its values; integers have signs."""
        vector = self.is_vector(value)
        found = value.type.element_type if vector else value.type
        if found == element:
            return value
        wanted = self.ir.VectorType.get(value.type.shape, element) if vector else element
        widen = self.arith.extsi if isinstance(element, self.ir.IntegerType) else self.arith.extf
        return widen(wanted, value)

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        """Give ``a * b + c`` of vectors, in one rounding where there are floating-point numbers."""
        if isinstance(c.type.element_type, self.ir.IntegerType):
            return self.arith.addi(self.arith.muli(a, b), c)
        return self.vector.fma(a, b, c)

    def plus(self, a: Value, b: Value) -> Value:
        """Give ``a + b`` of vectors or of numbers."""
        element = a.type.element_type if self.is_vector(a) else a.type
        return (self.arith.addi if isinstance(element, self.ir.IntegerType) else self.arith.addf)(a, b)

    def total(self, vector: Value) -> Value:
        """Give the sum of a vector's numbers; of floating-point numbers in any order."""
        element = vector.type.element_type
        if isinstance(element, self.ir.IntegerType):
            return self.vector.reduction(element, self.vector.CombiningKind.ADD, vector)
        fast = self.arith.FastMathFlags.reassoc
        return self.vector.reduction(element, self.vector.CombiningKind.ADD, vector, fastmath=fast)

    def recast(self, vector: Value, lanes: int, element: Type) -> Value:
        """See the bits of a vector as ``lanes`` numbers of another type."""
        wanted = self.vector_type(lanes, element)
        return vector if vector.type == wanted else self.vector.bitcast(wanted, vector)

    def front(self, vector: Value, lanes: int) -> Value:
        """Give the first lanes of a vector; the first alone is a number."""
        if lanes == 1:
            return self.vector.extract(vector, [], [0])
        if vector.type.shape[0] == lanes:
            return vector
        wanted = self.vector_type(lanes, vector.type.element_type)
        return self.vector.extract_strided_slice(wanted, vector, [0], [lanes], [1])
