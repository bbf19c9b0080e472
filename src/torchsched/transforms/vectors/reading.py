"""Reads the structured operations of a function into nests; what it cannot read stays as it is.

An operation becomes a nest if every size is known and every access is linear. Knows MLIR's operations, and nothing
of what is made of the nests.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any

from torchsched.bindings import Operation, bindings
from torchsched.transforms.vectors.accesses import Access, Axis, contiguous_strides
from torchsched.transforms.vectors.bodies import ASSERTION, read_body
from torchsched.transforms.vectors.nests import Nest, Start, simplified
from torchsched.transforms.vectors.numbers import Numbers
from torchsched.transforms.vectors.views import VIEWS, look_through, root_of

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
        sizes = _sizes(operands, maps, len(kinds))
        if sizes is None or 0 in sizes:
            return None
        picks = self._picks(operation, sizes)
        body = read_body(operation, self.numbers, picks)
        if body is None:
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
        placed = [
            linear
            for result, map_ in zip(operation.results, maps[inputs:], strict=True)
            if (linear := linear_in(list(result.type.shape), map_, len(kinds))) is not None
        ]
        counters = sorted(_counters(operation, picks))
        nest = Nest(
            axes=tuple(Axis(size, "reduction" in kind) for size, kind in zip(sizes, kinds, strict=True)),
            reads=tuple(known[:inputs]),
            writes=tuple(
                Access(self.buffer(result), *linear)
                for result, linear in zip(operation.results, placed, strict=True)
            ),
            starts=starts,
            initial=initial,
            indices=tuple(Access(-1 - d, tuple(int(k == d) for k in range(len(kinds)))) for d in counters),
            body=body,
            picks=tuple(picks.values()),
            picked=tuple(picks),
            gathers=tuple(self.buffer(value) for value in _gathered(operation, picks)),
            operation=operation,
        )
        # a result must be written once an iteration of the loops that are not reduced: anything else is
        # not what the operation's own definition promises
        for write in nest.writes:
            free = [axis for axis, stride in zip(nest.axes, write.strides, strict=True) if stride == 0]
            if write.offset or any(not axis.reduced and axis.size > 1 for axis in free):
                return None
        return simplified(nest)

    def _picks(self, operation: Operation, sizes: list[int]) -> dict[Operation, Access]:
        """Find the body's reads of tensors at places that are linear in the loop counters."""
        found = {}
        for view in operation.regions[0].blocks[0].operations:
            inner = view.operation
            if inner.name != "tensor.extract" or not inner.operands[0].type.has_static_shape:
                continue
            value, *indices = inner.operands
            linear = [_linear_value(each, len(sizes)) for each in indices]
            if None in linear:
                continue
            strides, offset = [0] * len(sizes), 0
            for step, (steps, first) in zip(contiguous_strides(list(value.type.shape)), linear, strict=True):  # type: ignore[misc]
                strides = [a + step * b for a, b in zip(strides, steps, strict=True)]
                offset += step * first
            seen = look_through(value, strides, offset, sizes)
            if seen is not None:
                found[inner] = Access(
                    self.buffer(seen.root), seen.strides, seen.offset, seen.bounds, seen.fill
                )
        return found

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


def _gathered(operation: Operation, picks: Container[Operation]) -> Iterator[Value]:
    """Give the tensors that the body reads at places it computes."""
    for view in operation.regions[0].blocks[0].operations:
        if view.operation.name == "tensor.extract" and view.operation not in picks:
            yield view.operation.operands[0]


def _counters(operation: Operation, picks: Container[Operation]) -> set[int]:
    """Find the loop counters whose value the body needs, but to say where a pick reads."""
    operations = [view.operation for view in operation.regions[0].blocks[0].operations]
    needed = {operations[-1], *(each for each in operations if each.name == ASSERTION)}
    found = set()
    for inner in reversed(operations):
        if inner not in needed or inner in picks:
            continue
        if inner.name == "linalg.index":
            found.add(inner.attributes["dim"].value)
        needed.update(each.owner for each in inner.operands if hasattr(each.owner, "opview"))
    return found


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


_CASTS = frozenset({"arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui", "arith.trunci"})


def _linear_value(value: Value, rank: int) -> tuple[list[int], int] | None:
    """Read a computed index as coefficients of the loop counters and a constant; ``None`` if it is not linear."""
    owner = value.owner
    if not hasattr(owner, "opview"):
        return None
    if owner.name == "linalg.index":
        steps = [0] * rank
        steps[owner.attributes["dim"].value] = 1
        return steps, 0
    if owner.name == "arith.constant":
        return [0] * rank, owner.attributes["value"].value
    if owner.name in _CASTS:
        return _linear_value(owner.operands[0], rank)
    if owner.name not in ("arith.addi", "arith.subi", "arith.muli"):
        return None
    left, right = (_linear_value(each, rank) for each in owner.operands)
    if left is None or right is None:
        return None
    if owner.name == "arith.muli":
        if any(left[0]) and any(right[0]):
            return None
        factor, other = (left[1], right) if not any(left[0]) else (right[1], left)
        return [factor * each for each in other[0]], factor * other[1]
    sign = 1 if owner.name == "arith.addi" else -1
    return [a + sign * b for a, b in zip(left[0], right[0], strict=True)], left[1] + sign * right[1]


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
