"""Where a product's operand lies in memory: read through what only reorders, widens or repeats it.

Looks at the operations that make an operand, and writes views of tensors; it writes no loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from torchsched.bindings import Operation, bindings
from torchsched.transforms.gemm.axes import UNIT, grouped

__all__ = ["Operand", "narrow", "owner_of", "through_producers", "viewed"]

Value = Any
_WIDENINGS = frozenset({"arith.extf", "arith.extsi"})


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor and the loop that runs over each of its dimensions."""

    value: Value
    axes: tuple[str, ...]

    @property
    def element(self) -> Any:
        """Its element type."""
        return self.value.type.element_type

    @property
    def contiguous(self) -> str:
        """The loop along which neighbours lie side by side."""
        shape = list(self.value.type.shape)
        for axis, size in zip(reversed(self.axes), reversed(shape), strict=True):
            if size != 1:
                return axis
        return UNIT

    def places(self, at: Mapping[str, Any]) -> list[Any]:
        """Give the index of each dimension, from that of each loop."""
        return [at.get(axis, 0) for axis in self.axes]


def owner_of(value: Value) -> Operation | None:
    """Give the operation that computes ``value``; ``None`` for an argument of a block."""
    ir = bindings("ir")
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def narrow(value: Value) -> Value:
    """Give what ``value`` was widened from, or itself."""
    owner = owner_of(value)
    return owner.operands[0] if owner is not None and owner.name in _WIDENINGS else value


def viewed(operand: Operand, joined_as: Mapping[str, str], op: Operation) -> Operand:
    """View an operand with joined loops, and without dimensions of one element; the view is written before ``op``."""
    names, groups = grouped(operand.axes, joined_as)
    if len(groups) == len(operand.axes):
        return Operand(operand.value, names)
    ir, tensor = bindings("ir"), bindings("dialects.tensor")
    had = list(operand.value.type.shape)
    shape = [prod(had[number] for number in group) for group in groups]
    result = ir.RankedTensorType.get(shape, operand.element)
    with ir.InsertionPoint(op), op.location:
        return Operand(tensor.collapse_shape(result, operand.value, groups), names)


def through_producers(operand: Operand, element: Any) -> Operand:
    """Read what a transpose, a widening or a repetition over batches was made from, in place of what it makes.

    Args:
        operand: As the product has it.
        element: The type that sums are kept in.
    """
    while True:
        before = _before(operand, element)
        # A batch that lies innermost cannot be read as vectors: then what was made of it is read instead.
        if before is None or before.contiguous.startswith("b"):
            return operand
        operand = before


def _before(operand: Operand, element: Any) -> Operand | None:
    owner = owner_of(operand.value)
    if owner is None:
        return None
    if owner.name == "linalg.transpose":
        return _untransposed(operand, owner)
    if owner.name == "linalg.generic":
        return _uncopied(operand, owner, element)
    if owner.name == "tensor.collapse_shape":
        return _uncollapsed(operand, owner)
    return None


def _untransposed(operand: Operand, transpose: Operation) -> Operand:
    permutation = list(transpose.attributes["permutation"])
    axes = [""] * len(permutation)
    for axis, source in zip(operand.axes, permutation, strict=True):
        axes[source] = axis
    return Operand(transpose.operands[0], tuple(axes))


def _uncopied(operand: Operand, generic: Operation, element: Any) -> Operand | None:
    """Look through a generic that gives its one input back, in another order, wider, or once for each batch."""
    ir = bindings("ir")
    block = generic.regions[0].blocks[0]
    if len(generic.operands) != 2 or len(generic.results) != 1 or len(block.operations) > 2:
        return None
    if narrow(block.operations[len(block.operations) - 1].operands[0]) != block.arguments[0]:
        return None
    source = generic.operands[0]
    # Sums are kept in ``element``: a wider copy of the input has the same values in it.
    if operand.element not in (source.type.element_type, element):
        return None
    read, written = (attribute.value for attribute in generic.attributes["indexing_maps"])
    if not all(isinstance(each, ir.AffineDimExpr) for each in written.results):
        return None
    names = {each.position: axis for each, axis in zip(written.results, operand.axes, strict=True)}
    axes = []
    for expression in read.results:
        if isinstance(expression, ir.AffineDimExpr):
            axes.append(names[expression.position])
        elif isinstance(expression, ir.AffineConstantExpr):
            axes.append(UNIT)
        else:
            return None
    loops = [axis for axis in axes if axis != UNIT]
    sizes = dict(zip(operand.axes, operand.value.type.shape, strict=True))
    dropped = {axis for axis in operand.axes if axis not in loops and sizes[axis] != 1}
    if len(set(loops)) != len(loops) or any(not axis.startswith("b") for axis in dropped):
        return None
    return Operand(source, tuple(axes))


def _uncollapsed(operand: Operand, collapse: Operation) -> Operand | None:
    """Look through a reordering below a collapse, where each group of dimensions lies together in the source too.

    Scores of an attention are such: ``k.transpose(-1, -2)`` of four dimensions, and then the two batches as one.
    """
    reordering = owner_of(collapse.operands[0])
    permutation = _permutation(reordering)
    if reordering is None or permutation is None:
        return None
    tensor, ir = bindings("dialects.tensor"), bindings("ir")
    groups = [[permutation[int(each)] for each in group] for group in collapse.attributes["reassociation"]]
    if any(group != list(range(group[0], group[0] + len(group))) for group in groups):
        return None
    order = sorted(range(len(groups)), key=lambda number: groups[number][0])
    shape = [collapse.results[0].type.shape[number] for number in order]
    result = ir.RankedTensorType.get(shape, operand.element)
    with ir.InsertionPoint(collapse), collapse.location:
        again = tensor.collapse_shape(result, reordering.operands[0], [groups[number] for number in order])
    return Operand(again, tuple(operand.axes[number] for number in order))


def _permutation(op: Operation | None) -> list[int] | None:
    """For each dimension of what ``op`` gives, that of its input; ``None`` where it does more than reorder."""
    if op is None:
        return None
    if op.name == "linalg.transpose":
        return list(op.attributes["permutation"])
    if op.name != "linalg.generic" or len(op.operands) != 2 or len(op.results) != 1:
        return None
    block = op.regions[0].blocks[0]
    if len(block.operations) != 1 or block.operations[0].operands[0] != block.arguments[0]:
        return None
    ir = bindings("ir")
    read, written = (attribute.value for attribute in op.attributes["indexing_maps"])
    if not all(isinstance(each, ir.AffineDimExpr) for each in (*read.results, *written.results)):
        return None
    found = [each.position for each in read.results]
    if len(found) != len(written.results):
        return None
    return [found.index(each.position) for each in written.results]
