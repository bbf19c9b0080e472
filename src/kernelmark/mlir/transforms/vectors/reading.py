"""Reads the structured operations of a function into nests; what it cannot read stays as it is.

An operation becomes a nest if every size is known and every access is linear. Knows MLIR's operations, and nothing
of what is made of the nests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kernelmark.mlir.bindings import Operation, bindings
from kernelmark.mlir.transforms.vectors.accesses import Access, Axis, contiguous_strides
from kernelmark.mlir.transforms.vectors.bodies import read_body
from kernelmark.mlir.transforms.vectors.nests import Nest, Start, simplified
from kernelmark.mlir.transforms.vectors.numbers import Numbers
from kernelmark.mlir.transforms.vectors.views import VIEWS, look_through, root_of

__all__ = ["Buffer", "Program", "filled", "linear_in", "read_program"]

Value = Any
"""``torch_mlir.ir.Value``."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """The elements of a tensor, whatever its shape at the moment."""

    value: Value
    """The tensor behind all views."""
    size: int
    element: Any
    """MLIR's element type."""


@dataclass(slots=True)
class Program:
    """The operations of one block in order, with what they depend on."""

    operations: list[Operation] = field(default_factory=list)
    nests: dict[int, Nest] = field(default_factory=dict)
    """By the position of the operation."""
    needs: list[frozenset[int]] = field(default_factory=list)
    """Positions of the operations whose results each one uses; views are looked through."""
    buffers: list[Buffer] = field(default_factory=list)
    produced: dict[int, int] = field(default_factory=dict)
    """The position of the nest that writes a buffer."""
    users: dict[int, set[int]] = field(default_factory=dict)
    """Positions of the operations that use a buffer."""


def read_program(block: Any, numbers: Numbers) -> Program:
    """Read the operations of ``block``."""
    reader = _Reader(Program(), numbers)
    for operation in block.operations:
        reader.read(operation.operation)
    return reader.program


class _Reader:
    def __init__(self, program: Program, numbers: Numbers) -> None:
        self.program = program
        self.numbers = numbers
        self._ids: dict[Value, int] = {}
        self._positions: dict[Any, int] = {}

    def read(self, operation: Operation) -> None:
        program = self.program
        position = len(program.operations)
        program.operations.append(operation)
        if operation.name in VIEWS:
            program.needs.append(frozenset())
            return
        self._positions[operation] = position
        needs: set[int] = set()
        for value in _used(operation):
            root = root_of(value)
            if (producer := self._positions.get(root.owner)) is not None:
                needs.add(producer)
            if _is_tensor(root):
                program.users.setdefault(self.buffer(root), set()).add(position)
        program.needs.append(frozenset(needs))
        if operation.name == "linalg.generic" and (nest := self._nest(operation)) is not None:
            program.nests[position] = nest
            for write in nest.writes:
                program.produced[write.buffer] = position

    def buffer(self, value: Value) -> int:
        root = root_of(value)
        if root not in self._ids:
            shape = list(root.type.shape) if root.type.has_static_shape else []
            size = 1
            for each in shape:
                size *= each
            self._ids[root] = len(self.program.buffers)
            self.program.buffers.append(Buffer(root, size, root.type.element_type))
        return self._ids[root]

    def _nest(self, operation: Operation) -> Nest | None:
        view = operation.opview
        maps = [each.value for each in operation.attributes["indexing_maps"]]
        kinds = [str(each) for each in operation.attributes["iterator_types"]]
        operands = list(operation.operands)
        if not len(operation.results):
            return None
        if not all(_is_tensor(each) and each.type.has_static_shape for each in operands):
            return None
        if any("reduction" not in kind and "parallel" not in kind for kind in kinds):
            return None
        body = read_body(operation, self.numbers)
        sizes = _sizes(operands, maps, len(kinds))
        if body is None or sizes is None or 0 in sizes:
            return None
        accesses = [self._access(value, map_, sizes) for value, map_ in zip(operands, maps, strict=True)]
        known = [access for access in accesses if access is not None]
        if len(known) < len(accesses):
            return None
        inputs = len(view.inputs)
        starts, initial = zip(
            *(
                self._start(value, access, operation, k)
                for k, (value, access) in enumerate(zip(operands[inputs:], known[inputs:], strict=True))
            ),
            strict=True,
        )
        counters = sorted(_counters(operation))
        nest = Nest(
            axes=tuple(Axis(size, "reduction" in kind) for size, kind in zip(sizes, kinds, strict=True)),
            reads=tuple(known[:inputs]),
            writes=tuple(
                Access(self.buffer(result), *linear_in(list(result.type.shape), map_, len(kinds)))
                for result, map_ in zip(operation.results, maps[inputs:], strict=True)
            ),
            starts=starts,
            initial=initial,
            indices=tuple(Access(-1 - d, tuple(int(k == d) for k in range(len(kinds)))) for d in counters),
            body=body,
            gathers=tuple(
                self.buffer(value) for value in _used_in(operation.regions[0]) if _is_tensor(value)
            ),
            operation=operation,
        )
        # a result must be written once an iteration of the loops that are not reduced: anything else is
        # not what the operation's own definition promises
        for write in nest.writes:
            free = [axis for axis, stride in zip(nest.axes, write.strides, strict=True) if stride == 0]
            if write.offset or any(not axis.reduced and axis.size > 1 for axis in free):
                return None
        return simplified(nest)

    def _access(self, value: Value, map_: Any, sizes: list[int]) -> Access | None:
        linear = linear_in(list(value.type.shape), map_, len(sizes))
        if linear is None:
            return None
        strides, offset = linear
        seen = look_through(value, strides, offset, sizes)
        if seen is None:
            return None
        buffer = self.buffer(seen.root)
        return Access(buffer, seen.strides, seen.offset, seen.bounds, seen.fill)

    def _start(
        self, value: Value, access: Access, operation: Operation, result: int
    ) -> tuple[Start, Access | None]:
        block = operation.regions[0].blocks[0]
        argument = block.arguments[len(block.arguments) - len(operation.results) + result]
        if not list(argument.uses):
            return Start.NOTHING, None
        if filled(value) is not None:
            return Start.VALUE, None
        return Start.TENSOR, access


def filled(value: Value) -> Value | None:
    """Give the scalar that all elements of a tensor are, if that can be seen."""
    owner = root_of(value, VIEWS - {"tensor.pad"}).owner
    if hasattr(owner, "opview") and owner.name == "linalg.fill":
        return owner.operands[0]
    return None


def _is_tensor(value: Value) -> bool:
    ir = bindings("ir")
    return isinstance(value.type, ir.RankedTensorType)


def _used(operation: Operation) -> Iterator[Value]:
    """Give what an operation uses, in its regions too."""
    yield from operation.operands
    for region in operation.regions:
        yield from _used_in(region)


def _used_in(region: Any) -> Iterator[Value]:
    for block in region.blocks:
        for inner in block.operations:
            yield from _used(inner.operation)


def _counters(operation: Operation) -> set[int]:
    block = operation.regions[0].blocks[0]
    return {
        inner.operation.attributes["dim"].value
        for inner in block.operations
        if inner.operation.name == "linalg.index"
    }


def _sizes(operands: list[Value], maps: list[Any], rank: int) -> list[int] | None:
    """Find each loop's size from an operand that the loop alone walks along."""
    ir = bindings("ir")
    sizes: list[int | None] = [None] * rank
    for value, map_ in zip(operands, maps, strict=True):
        for extent, expression in zip(value.type.shape, map_.results, strict=True):
            if isinstance(expression, ir.AffineDimExpr):
                sizes[ir.AffineDimExpr(expression).position] = extent
    return None if None in sizes else sizes  # type: ignore[return-value]


def linear_in(shape: list[int], map_: Any, rank: int) -> tuple[tuple[int, ...], int] | None:
    """Read a map into a contiguous tensor as strides and an offset; ``None`` if it is not linear."""
    strides, offset = [0] * rank, 0
    for step, expression in zip(contiguous_strides(shape), map_.results, strict=True):
        linear = _linear(expression, rank)
        if linear is None:
            return None
        offset += step * linear[1]
        for k in range(rank):
            strides[k] += step * linear[0][k]
    return tuple(strides), offset


def _linear(expression: Any, rank: int) -> tuple[list[int], int] | None:
    """Read an affine expression as coefficients of the loops and a constant; ``None`` if it is not linear."""
    ir = bindings("ir")
    zero = [0] * rank
    if isinstance(expression, ir.AffineConstantExpr):
        return zero, ir.AffineConstantExpr(expression).value
    if isinstance(expression, ir.AffineDimExpr):
        zero[ir.AffineDimExpr(expression).position] = 1
        return zero, 0
    adds, times = isinstance(expression, ir.AffineAddExpr), isinstance(expression, ir.AffineMulExpr)
    if not adds and not times:
        return None
    view = (ir.AffineAddExpr if adds else ir.AffineMulExpr)(expression)
    left, right = _linear(view.lhs, rank), _linear(view.rhs, rank)
    if left is None or right is None:
        return None
    if adds:
        return [a + b for a, b in zip(left[0], right[0], strict=True)], left[1] + right[1]
    if any(left[0]) and any(right[0]):
        return None
    factor, other = (left[1], right) if not any(left[0]) else (right[1], left)
    return [factor * each for each in other[0]], factor * other[1]
