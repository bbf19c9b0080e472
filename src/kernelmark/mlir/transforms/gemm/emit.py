"""Writes MLIR at the current insertion point: index arithmetic, loops, parallel loops and vector accesses on tensors.

An index may be a Python number: arithmetic on numbers is done here, and a loop of one turn becomes its body, so
that what is known when the code is made is not computed when it runs. Knows nothing of matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from kernelmark.mlir.bindings import bindings

__all__ = ["Emitter", "Index", "Slice", "Value"]

Value: TypeAlias = Any
"""``torch_mlir.ir.Value``."""
Type: TypeAlias = Any
"""``torch_mlir.ir.Type``."""
Index: TypeAlias = "int | Value"
Slice: TypeAlias = "tuple[Value, Sequence[Index], Sequence[Index]]"
"""What one turn of a parallel loop computed: a tile, and its offsets and sizes in the whole."""


class Emitter:
    """Writes operations; every method leaves the insertion point where it was."""

    def __init__(self) -> None:
        self.ir = bindings("ir")
        self.arith = bindings("dialects.arith")
        self.scf = bindings("dialects.scf")
        self.tensor = bindings("dialects.tensor")
        self.vector = bindings("dialects.vector")
        self.index = self.ir.IndexType.get()
        self.bool = self.ir.IntegerType.get_signless(1)

    # --- numbers ------------------------------------------------------------------------------

    def value(self, index: Index) -> Value:
        """Give ``index`` as a value."""
        return self.arith.constant(self.index, index) if isinstance(index, int) else index

    def add(self, a: Index, b: Index) -> Index:
        """Give ``a + b``."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 or b == 0:
            return b if isinstance(a, int) and a == 0 else a
        return self.arith.addi(self.value(a), self.value(b))

    def sub(self, a: Index, b: Index) -> Index:
        """Give ``a - b``."""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        if isinstance(b, int) and b == 0:
            return a
        return self.arith.subi(self.value(a), self.value(b))

    def mul(self, a: Index, b: Index) -> Index:
        """Give ``a * b``."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if isinstance(a, int):
            a, b = b, a
        if isinstance(b, int) and b in (0, 1):
            return a if b else 0
        return self.arith.muli(self.value(a), self.value(b))

    def div(self, a: Index, b: int) -> Index:
        """Give ``a // b``; neither is negative."""
        if isinstance(a, int):
            return a // b
        return a if b == 1 else self.arith.divui(a, self.value(b))

    def min(self, a: Index, b: Index) -> Index:
        """Give the smaller one."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.arith.minsi(self.value(a), self.value(b))

    def max(self, a: Index, b: Index) -> Index:
        """Give the larger one."""
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.arith.maxsi(self.value(a), self.value(b))

    def at_most(self, a: Index, b: Index) -> bool | Value:
        """Give ``a <= b``."""
        if isinstance(a, int) and isinstance(b, int):
            return a <= b
        return self.arith.cmpi(self.arith.CmpIPredicate.sle, self.value(a), self.value(b))

    def both(self, a: bool | Value, b: bool | Value) -> bool | Value:
        """Give ``a and b``."""
        if isinstance(a, bool) or isinstance(b, bool):
            known, other = (a, b) if isinstance(a, bool) else (b, a)
            return other if known else False
        return self.arith.andi(a, b)

    def zero(self, type_: Type) -> Value:
        """Give the zero of a number type or of a vector of one."""
        element = type_.element_type if isinstance(type_, self.ir.VectorType) else type_
        number = 0 if isinstance(element, self.ir.IntegerType) else 0.0
        make = self.ir.IntegerAttr.get if number == 0 and isinstance(number, int) else self.ir.FloatAttr.get
        attribute = make(element, number)
        if element is not type_:
            attribute = self.ir.DenseElementsAttr.get_splat(type_, attribute)
        return self.arith.constant(type_, attribute)

    # --- control ------------------------------------------------------------------------------

    def loop(
        self,
        bounds: tuple[Index, Index, int],
        carried: Sequence[Value],
        body: Callable[..., Sequence[Value]],
    ) -> list[Value]:
        """Write ``for i in range(*bounds)``; ``body(i, *carried)`` gives what the next turn gets."""
        lower, upper, step = bounds
        if isinstance(lower, int) and isinstance(upper, int):
            turns = -(-(upper - lower) // step)
            if turns <= 0:
                return list(carried)
            if turns == 1:
                return list(body(lower, *carried))
        op = self.scf.ForOp(self.value(lower), self.value(upper), self.value(step), list(carried))
        with self.ir.InsertionPoint(op.body):
            self.scf.yield_(list(body(op.induction_variable, *op.inner_iter_args)))
        return list(op.results)

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

    # --- tensors ------------------------------------------------------------------------------

    def empty(self, shape: Sequence[int], element: Type) -> Value:
        """Make a tensor without contents."""
        return self.tensor.empty(list(shape), element)

    def slice(
        self, whole: Value, offsets: Sequence[Index], sizes: Sequence[Index], *, drop: Sequence[int] = ()
    ) -> Value:
        """Take a part of ``whole``; the dimensions ``drop``, of which it has one turn each, do not remain."""
        dynamic = self.ir.ShapedType.get_dynamic_size()
        kept = [size for number, size in enumerate(sizes) if number not in drop]
        shape = [size if isinstance(size, int) else dynamic for size in kept]
        result = self.ir.RankedTensorType.get(shape, whole.type.element_type)
        return self.tensor.extract_slice(result, whole, *self._slicing(offsets, sizes))

    def _slicing(self, offsets: Sequence[Index], sizes: Sequence[Index]) -> tuple[list[Any], ...]:
        dynamic = self.ir.ShapedType.get_dynamic_size()
        parts: list[list[Any]] = []
        for given in (offsets, sizes, [1] * len(offsets)):
            parts.append([each for each in given if not isinstance(each, int)])
        for given in (offsets, sizes, [1] * len(offsets)):
            parts.append([each if isinstance(each, int) else dynamic for each in given])
        return tuple(parts)

    def extract(self, source: Value, indices: Sequence[Index]) -> Value:
        """Read one element."""
        return self.tensor.extract(source, [self.value(each) for each in indices])

    # --- vectors ------------------------------------------------------------------------------

    def vector_type(self, lanes: int, element: Type) -> Type:
        """Give the type of ``lanes`` elements."""
        return self.ir.VectorType.get([lanes], element)

    def mask(self, lanes: int, count: Index) -> Value:
        """Switch on the first ``count`` of ``lanes`` lanes; none for a negative count."""
        return self.vector.create_mask(self.vector_type(lanes, self.bool), [self.value(count)])

    def read(self, source: Value, indices: Sequence[Index], lanes: int, mask: Value | None = None) -> Value:
        """Read ``lanes`` neighbours along the last dimension; those switched off are zero."""
        element = source.type.element_type
        return self.vector.transfer_read(
            self.vector_type(lanes, element),
            source,
            [self.value(each) for each in indices],
            self._last(source),
            self.zero(element),
            [True],
            mask=mask,
        )

    def write(self, vector: Value, into: Value, indices: Sequence[Index], mask: Value | None = None) -> Value:
        """Write a vector along the last dimension; give the tensor that holds it."""
        places = [self.value(each) for each in indices]
        return self.vector.transfer_write(
            into.type, vector, into, places, self._last(into), [True], mask=mask
        )

    def _last(self, tensor: Value) -> Any:
        rank = tensor.type.rank
        return self.ir.AffineMap.get(rank, 0, [self.ir.AffineExpr.get_dim(rank - 1)])

    def splat(self, scalar: Value, lanes: int) -> Value:
        """Fill a vector with a number."""
        return self.vector.broadcast(self.vector_type(lanes, scalar.type), scalar)

    def convert(self, value: Value, element: Type) -> Value:
        """Widen a number or a vector to ``element``, which holds each of its values; integers have signs."""
        vector = isinstance(value.type, self.ir.VectorType)
        found = value.type.element_type if vector else value.type
        if found == element:
            return value
        wanted = self.ir.VectorType.get(value.type.shape, element) if vector else element
        widen = self.arith.extsi if isinstance(element, self.ir.IntegerType) else self.arith.extf
        return widen(wanted, value)

    def multiply_add(self, a: Value, b: Value, c: Value) -> Value:
        """Give ``a * b + c``, in one rounding where there are floating-point numbers."""
        if isinstance(c.type.element_type, self.ir.IntegerType):
            return self.arith.addi(self.arith.muli(a, b), c)
        return self.vector.fma(a, b, c)

    def plus(self, a: Value, b: Value) -> Value:
        """Give ``a + b`` of vectors or of numbers."""
        element = a.type.element_type if isinstance(a.type, self.ir.VectorType) else a.type
        return (self.arith.addi if isinstance(element, self.ir.IntegerType) else self.arith.addf)(a, b)

    def recast(self, vector: Value, lanes: int, element: Type) -> Value:
        """See the bits of a vector as ``lanes`` numbers of another type."""
        wanted = self.vector_type(lanes, element)
        return vector if vector.type == wanted else self.vector.bitcast(wanted, vector)

    def front(self, vector: Value, lanes: int) -> Value:
        """Give the first lanes of a vector."""
        if vector.type.shape[0] == lanes:
            return vector
        wanted = self.vector_type(lanes, vector.type.element_type)
        return self.vector.extract_strided_slice(wanted, vector, [0], [lanes], [1])

    def first(self, vector: Value) -> Value:
        """Give the number in the first lane."""
        return self.vector.extract(vector, [], [0])

    def total(self, vector: Value) -> Value:
        """Give the sum of a vector's numbers; of floating-point numbers in any order."""
        element = vector.type.element_type
        if isinstance(element, self.ir.IntegerType):
            return self.vector.reduction(element, self.vector.CombiningKind.ADD, vector)
        fast = self.arith.FastMathFlags.reassoc
        return self.vector.reduction(element, self.vector.CombiningKind.ADD, vector, fastmath=fast)

    def transpose(self, rows: Sequence[Value]) -> list[Value]:
        """Give the columns of a square of vectors, by shuffles of two vectors each.

        The square's off-diagonal blocks change places, from single elements up to halves: log2(n) rounds of n
        shuffles, every one of which a processor with two-source permutations does in one instruction.
        """
        lanes = len(rows)
        now = list(rows)
        block = 1
        while block < lanes:
            upper = [lane if not lane & block else lanes + lane - block for lane in range(lanes)]
            lower = [lane + block if not lane & block else lanes + lane for lane in range(lanes)]
            after = list(now)
            for row in range(lanes):
                if not row & block:
                    after[row] = self.vector.shuffle(now[row], now[row + block], upper)
                    after[row + block] = self.vector.shuffle(now[row], now[row + block], lower)
            now = after
            block *= 2
        return now
