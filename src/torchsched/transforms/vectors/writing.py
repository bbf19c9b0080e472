"""Writes the few operations that loops are made of: indices, loops, reads and writes of tensors.

An index is a Python integer as long as it is known, so that constants fold while they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchsched.bindings import bindings

__all__ = ["Index", "Writer"]

Value = Any
Index = Any
"""An ``int``, or a value of type ``index``."""


class Writer:
    """Writes at the current insertion point."""

    def __init__(self) -> None:
        self.ir = bindings("ir")
        self.arith = bindings("dialects.arith")
        self.scf = bindings("dialects.scf")
        self.tensor = bindings("dialects.tensor")
        self.vector = bindings("dialects.vector")
        self.index_type = self.ir.IndexType.get()
        self._spans: dict[Value, tuple[int, int]] = {}

    # --- indices ---

    def index(self, value: Index) -> Value:
        """Give an index as a value."""
        if isinstance(value, int):
            return self.arith.constant(self.index_type, value)
        return value

    def add(self, left: Index, right: Index) -> Index:
        """Add two indices."""
        if isinstance(left, int) and isinstance(right, int):
            return left + right
        if isinstance(left, int) and left == 0:
            return right
        if isinstance(right, int) and right == 0:
            return left
        return self._spanned(
            self.arith.addi(self.index(left), self.index(right)),
            left,
            right,
            lambda a, b: (a[0] + b[0], a[1] + b[1]),
        )

    def sub(self, left: Index, right: Index) -> Index:
        """Subtract an index from another."""
        if isinstance(right, int) and right == 0:
            return left
        if isinstance(left, int) and isinstance(right, int):
            return left - right
        return self._spanned(
            self.arith.subi(self.index(left), self.index(right)),
            left,
            right,
            lambda a, b: (a[0] - b[1], a[1] - b[0]),
        )

    def times(self, left: Index, factor: int) -> Index:
        """Multiply an index by a known factor."""
        if isinstance(left, int):
            return left * factor
        if factor == 1:
            return left
        made = self.arith.muli(left, self.index(factor))
        if (span := self.span(left)) is not None:
            self.learn(made, *sorted((span[0] * factor, span[1] * factor)))
        return made

    def least(self, left: Index, right: Index) -> Index:
        """Give the smaller of two indices."""
        if isinstance(left, int) and isinstance(right, int):
            return min(left, right)
        return self.arith.minsi(self.index(left), self.index(right))

    def whole(self, extent: Index, step: int) -> Index:
        """Give the largest multiple of ``step`` up to ``extent``."""
        if isinstance(extent, int):
            return extent - extent % step
        if step == 1:
            return extent
        return self.arith.subi(extent, self.arith.remui(extent, self.index(step)))

    def span(self, index: Index) -> tuple[int, int] | None:
        """Give the least and the largest value that an index can have, where that is known."""
        return (index, index) if isinstance(index, int) else self._spans.get(index)

    def learn(self, index: Value, least: int, most: int) -> None:
        """Note that an index is between two numbers."""
        self._spans[index] = (least, most)

    def _spanned(
        self,
        made: Value,
        left: Index,
        right: Index,
        ends: Callable[[tuple[int, int], tuple[int, int]], tuple[int, int]],
    ) -> Value:
        a, b = self.span(left), self.span(right)
        if a is not None and b is not None:
            self._spans[made] = ends(a, b)
        return made

    # --- loops ---

    def loop(
        self,
        start: Index,
        stop: Index,
        step: int,
        carried: Sequence[Value],
        body: Callable[[Index, list[Value]], Sequence[Value]],
        *,
        inline: bool = False,
    ) -> list[Value]:
        """Write a loop, or nothing or its body alone where it is known to run never or once.

        Args:
            start: The first index.
            stop: The end.
            step: From one index to the next.
            carried: What the first turn gets.
            body: Writes a turn; gives what the next one gets.
            inline: Write the turns one after the other, where their number is known.
        """
        if isinstance(start, int) and isinstance(stop, int):
            if start >= stop:
                return list(carried)
            if inline or start + step >= stop:
                now = list(carried)
                for index in range(start, stop, step):
                    now = list(body(index, now))
                return now
        scf = self.scf
        loop = scf.ForOp(self.index(start), self.index(stop), self.index(step), list(carried))
        if isinstance(start, int) and isinstance(stop, int):
            self.learn(loop.induction_variable, start, start + (stop - start - 1) // step * step)
        with self.ir.InsertionPoint(loop.body):
            results = body(loop.induction_variable, list(loop.inner_iter_args))
            scf.YieldOp(list(results))
        return list(loop.results)

    # --- vectors and scalars ---

    def vector_type(self, width: int, element: Any) -> Any:
        """Give the type of a vector."""
        return self.ir.VectorType.get([width], element)

    def zero(self, element: Any) -> Value:
        """Give zero of a type."""
        return self.constant(element, 0)

    def constant(self, element: Any, number: float) -> Value:
        """Give a constant of a scalar type."""
        ir = self.ir
        if str(element) in ("f64", "f32", "f16", "bf16"):
            return self.arith.constant(element, ir.FloatAttr.get(element, float(number)))
        return self.arith.constant(element, ir.IntegerAttr.get(element, int(number)))

    def splat(self, value: Value, width: int) -> Value:
        """Fill a vector with a scalar; a vector, or width 1, is left as it is."""
        if width == 1 or self.is_vector(value):
            return value
        return self.vector.broadcast(self.vector_type(width, value.type), value)

    def is_vector(self, value: Value) -> bool:
        """Whether a value is a vector."""
        return isinstance(value.type, self.ir.VectorType)

    def steps(self, width: int) -> Value:
        """Give the vector 0, 1, 2, ... of indices."""
        return self.vector.step(self.vector_type(width, self.index_type))

    def op(self, name: str, results: Sequence[Any], operands: Sequence[Value], **attributes: Any) -> Value:
        """Write an operation with one result by name."""
        made = self.ir.Operation.create(
            name, results=list(results), operands=list(operands), attributes=attributes
        )
        return made.results[0]

    def lanes(self, on: Sequence[bool]) -> Value:
        """Give the mask of the lanes that are on."""
        ir = self.ir
        kind = self.vector_type(len(on), ir.IntegerType.get_signless(1))
        values = [ir.BoolAttr.get(each) for each in on]
        return self.arith.constant(kind, ir.DenseElementsAttr.get(values, kind))

    def read(
        self,
        tensor: Value,
        at: Sequence[Index],
        width: int,
        mask: Value | None = None,
        padding: Value | None = None,
    ) -> Value:
        """Read one element, or ``width`` that lie side by side; what the mask leaves out is padding, or zero."""
        indices = [self.index(each) for each in at]
        if width == 1:
            return self.tensor.extract(tensor, indices)
        element = tensor.type.element_type
        return self.vector.transfer_read(
            self.vector_type(width, element),
            tensor,
            indices,
            self._minor(len(indices)),
            self.zero(element) if padding is None else padding,
            [True],
            mask=mask,
        )

    def write(self, value: Value, tensor: Value, at: Sequence[Index], mask: Value | None = None) -> Value:
        """Write a scalar, or a vector side by side; give the tensor that has it."""
        indices = [self.index(each) for each in at]
        if not self.is_vector(value):
            return self.tensor.insert(value, tensor, indices)
        made = self.vector.TransferWriteOp(
            tensor.type, value, tensor, indices, self._minor(len(indices)), [True], mask=mask
        )
        return made.operation.results[0]

    def _minor(self, rank: int) -> Any:
        ir = self.ir
        return ir.AffineMapAttr.get(ir.AffineMap.get_minor_identity(rank, 1))

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

    # --- tensors ---

    def tensor_type(self, shape: Sequence[int], element: Any) -> Any:
        """Give the type of a tensor."""
        return self.ir.RankedTensorType.get(list(shape), element)

    def empty(self, shape: Sequence[int], element: Any) -> Value:
        """Give a tensor that holds nothing yet."""
        return self.tensor.empty(list(shape), element)

    def reshaped(self, tensor: Value, shape: Sequence[int]) -> Value:
        """Give the same elements in another shape of known sizes."""
        had = list(tensor.type.shape)
        if had == list(shape):
            return tensor
        flat = self.flat(tensor)
        size = flat.type.shape[0]
        if list(shape) == [size]:
            return flat
        wanted = self.tensor_type(shape, tensor.type.element_type)
        if not shape:
            return self.tensor.collapse_shape(wanted, flat, [])
        return self.tensor.expand_shape(wanted, flat, [list(range(len(shape)))], [], list(shape))

    def flat(self, tensor: Value) -> Value:
        """Give the elements as a tensor of one dimension."""
        shape = list(tensor.type.shape)
        element = tensor.type.element_type
        if len(shape) == 1:
            return tensor
        if not shape:
            return self.tensor.expand_shape(self.tensor_type([1], element), tensor, [], [], [1])
        size = 1
        for each in shape:
            size *= each
        return self.tensor.collapse_shape(
            self.tensor_type([size], element), tensor, [list(range(len(shape)))]
        )
