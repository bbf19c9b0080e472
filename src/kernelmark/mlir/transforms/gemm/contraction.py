"""Recognises products of matrices in linalg on tensors, and reads their operands through transposes and widenings.

Owns the answer to "which product is this, and where does each number of it lie in memory". It writes no loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelmark.mlir.bindings import Operation, bindings

__all__ = ["Contraction", "Operand", "constant_zero", "is_product", "match_contraction", "squeezed"]

Value = Any

_NAMED = frozenset(
    {
        "linalg.matmul",
        "linalg.batch_matmul",
        "linalg.matvec",
        "linalg.vecmat",
        "linalg.batch_matvec",
        "linalg.batch_vecmat",
        "linalg.dot",
    }
)
_FLOATS = ("f64", "f32", "f16", "bf16")
_INTEGERS = ("i64", "i32", "i16", "i8")
_WIDENINGS = frozenset({"arith.extf", "arith.extsi"})
UNIT = "1"
"""The axis of a dimension that has one element and that no loop runs over."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor and the loop that runs over each of its dimensions: ``m``, ``n``, ``k``, a batch loop, or ``1``."""

    value: Value
    axes: tuple[str, ...]

    @property
    def element(self) -> Any:
        """Its element type."""
        return self.value.type.element_type

    @property
    def contiguous(self) -> str:
        """The axis along which neighbours lie side by side."""
        shape = list(self.value.type.shape)
        for axis, size in zip(reversed(self.axes), reversed(shape), strict=True):
            if size != 1:
                return axis
        return self.axes[-1] if self.axes else UNIT

    def places(self, at: Mapping[str, Any]) -> list[Any]:
        """Give the index of each dimension, from that of each loop."""
        return [at.get(axis, 0) for axis in self.axes]


@dataclass(frozen=True, slots=True)
class Contraction:
    """``out[b, m, n] = initial + sum over k of lhs[b, m, k] * rhs[b, k, n]``, each in a memory order of its own."""

    op: Operation
    lhs: Operand
    rhs: Operand
    loops: tuple[str, ...]
    """The loop over each dimension of the result."""
    out: tuple[str, ...]
    """The same without dimensions of one element at the end; the last is ``n``."""
    initial: Value | None
    """What the sums begin with: ``None`` for zero, a number, or a tensor of the result's shape."""
    sizes: Mapping[str, int]
    """The turns of each loop; ``m``, ``n`` and ``k`` are always among them."""

    @property
    def element(self) -> Any:
        """The type that sums are kept in."""
        return self.op.results[0].type.element_type

    @property
    def batch(self) -> tuple[str, ...]:
        """The batch loops, the outermost first."""
        return tuple(axis for axis in self.out if axis.startswith("b"))

    @property
    def batches(self) -> int:
        """How many products there are."""
        count = 1
        for axis in self.batch:
            count *= self.sizes[axis]
        return count


def is_product(op: Operation) -> bool:
    """Say whether ``op`` multiplies matrices, in shapes and types that may or may not be served here."""
    return _named(op) is not None


def match_contraction(op: Operation) -> Contraction | None:
    """Read ``op`` as a product of matrices; ``None`` where it is none that this package can write.

    The operands are named so that neighbours in the result are neighbours along ``n``. Views of operands that begin
    or end in dimensions of one element may be written before ``op``.
    """
    named = _named(op)
    if named is None:
        return None
    sizes: dict[str, int] = {"m": 1, "n": 1, "k": 1}
    operands = list(op.operands)
    for value, axes in zip(operands, named, strict=True):
        if any(size < 1 for size in value.type.shape):  # dynamic, or nothing to compute
            return None
        sizes.update(zip(axes, value.type.shape, strict=True))
    out = Operand(operands[2], named[2])
    if out.contiguous not in ("m", "n") or not _is_computed(op):
        return None
    element = op.results[0].type.element_type
    lhs, rhs = (
        _through_producers(Operand(value, axes), element)
        for value, axes in zip(operands[:2], named[:2], strict=True)
    )
    if lhs.contiguous not in ("m", "k") or rhs.contiguous not in ("n", "k"):
        return None
    loops = named[2]
    if out.contiguous == "m":
        lhs, rhs, loops = _renamed(rhs), _renamed(lhs), _renamed(out).axes
        sizes["m"], sizes["n"] = sizes["n"], sizes["m"]
    initial = _initial(operands[2])
    if hasattr(getattr(initial, "type", None), "shape"):
        initial = squeezed(Operand(initial, loops), op).value
    return Contraction(
        op,
        squeezed(lhs, op),
        squeezed(rhs, op),
        loops,
        tuple(loops[: len(loops) - _units_last(out)]),
        initial,
        sizes,
    )


def squeezed(operand: Operand, op: Operation) -> Operand:
    """Leave out dimensions of one element at the end, by a view written before ``op``.

    A vector lies along a tensor's last dimension; what has a column of one element lies along the one before.
    """
    extra = _units_last(operand)
    if not extra:
        return operand
    ir, tensor = bindings("ir"), bindings("dialects.tensor")
    shape = list(operand.value.type.shape)
    kept = len(shape) - extra
    groups = [[number] for number in range(kept - 1)] + [list(range(kept - 1, len(shape)))]
    result = ir.RankedTensorType.get(shape[:kept], operand.element)
    with ir.InsertionPoint(op), op.location:
        view = tensor.collapse_shape(result, operand.value, groups)
    return Operand(view, operand.axes[:kept])


def constant_zero(value: Value) -> bool:
    """Say whether ``value`` is the constant zero; minus zero is one too, as a sum's beginning."""
    owner = _owner(value)
    if owner is None or owner.name != "arith.constant":
        return False
    attribute = owner.attributes["value"]
    return hasattr(attribute, "value") and attribute.value == 0


# --- what the operation is ------------------------------------------------------------------------


def _named(op: Operation) -> tuple[tuple[str, ...], ...] | None:
    """Give the loop over each dimension of both operands and the result."""
    if op.name in _NAMED:
        unsigned = "cast" in op.attributes and "unsigned" in str(op.attributes["cast"])
        if len(op.results) != 1 or unsigned:
            return None
    elif op.name != "linalg.generic" or len(op.results) != 1 or not _sums_products(op):
        return None
    maps = _maps(op)
    return None if maps is None or len(maps) != 3 else _name_axes(*maps)


def _is_computed(op: Operation) -> bool:
    """Whether vectors can add up in the result's type, and hold both operands' numbers in it."""
    total = str(op.results[0].type.element_type)
    narrower = {"f64": _FLOATS, "f32": _FLOATS[1:], "i64": _INTEGERS, "i32": _INTEGERS[1:]}.get(total, ())
    return all(str(value.type.element_type) in narrower for value in list(op.operands)[:2])


def _sums_products(op: Operation) -> bool:
    """Whether the body is ``out + a * b``, where ``a`` and ``b`` may be widened first."""
    block = op.regions[0].blocks[0]
    if len(block.arguments) != 3:
        return False
    a, b, out = block.arguments
    body = list(block.operations)
    if body[-1].operation.name != "linalg.yield" or len(body) > 5:
        return False
    total = _owner(body[-1].operands[0])
    if total is None or total.name not in ("arith.addf", "arith.addi"):
        return False
    terms = list(total.operands)
    if out not in terms:
        return False
    product = _owner(terms[1] if terms[0] == out else terms[0])
    if product is None or product.name not in ("arith.mulf", "arith.muli"):
        return False
    factors = [_narrow(each) for each in product.operands]
    return factors in ([a, b], [b, a])


def _narrow(value: Value) -> Value:
    owner = _owner(value)
    return owner.operands[0] if owner is not None and owner.name in _WIDENINGS else value


def _owner(value: Value) -> Operation | None:
    """The operation that computes ``value``; ``None`` for an argument of a block."""
    ir = bindings("ir")
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


# --- which loop runs over which dimension ---------------------------------------------------------


def _maps(op: Operation) -> list[list[int]] | None:
    """For each operand, the loop that runs over each dimension; ``None`` where that is no plain loop."""
    ir, linalg = bindings("ir"), bindings("dialects.linalg")
    found = []
    for attribute in linalg.get_indexing_maps(op):
        dims = []
        for expression in attribute.value.results:
            if not isinstance(expression, ir.AffineDimExpr):
                return None
            dims.append(expression.position)
        if len(set(dims)) != len(dims):
            return None
        found.append(dims)
    return found


def _name_axes(
    lhs: Sequence[int], rhs: Sequence[int], out: Sequence[int]
) -> tuple[tuple[str, ...], ...] | None:
    """Name the loops; ``None`` where one is in no product of matrices, or the sum runs over two.

    Where several loops run over rows, or over columns, all but one are batches: of products with one right, or left,
    operand.
    """
    kept = {
        _kept([dim for dim in out if dim in one and dim not in other], one, out): axis
        for one, other, axis in ((lhs, rhs, "m"), (rhs, lhs, "n"))
    }
    names: dict[int, str] = {}
    for dim in out:
        if dim not in lhs and dim not in rhs:
            return None
        names[dim] = kept.get(dim, f"b{dim}")
    summed = {dim for dim in (*lhs, *rhs) if dim not in out}
    if len(summed) != 1 or not summed <= set(lhs) & set(rhs):
        return None
    names[summed.pop()] = "k"
    return tuple(tuple(names[dim] for dim in dims) for dims in (lhs, rhs, out))


def _kept(candidates: Sequence[int], operand: Sequence[int], out: Sequence[int]) -> int:
    """Choose among loops over rows: one along which neighbours lie side by side, or else the innermost."""
    for dim in (out[-1:], operand[-1:], candidates[-1:]):
        if dim and dim[0] in candidates:
            return dim[0]
    return -1


def _renamed(operand: Operand) -> Operand:
    """Let rows be columns and columns rows: the product of the transposes is the transpose."""
    other = {"m": "n", "n": "m"}
    return replace(operand, axes=tuple(other.get(axis, axis) for axis in operand.axes))


# --- where the numbers lie ------------------------------------------------------------------------


def _initial(value: Value) -> Value | None:
    owner = _owner(value)
    if owner is None or owner.name != "linalg.fill":
        return value
    number = owner.operands[0]
    return None if constant_zero(number) else number


def _units_last(operand: Operand) -> int:
    """How many dimensions of one element there are at the end; the first dimension is none of them."""
    count = 0
    for size in reversed(list(operand.value.type.shape)[1:]):
        if size != 1:
            break
        count += 1
    return count


def _through_producers(operand: Operand, element: Any) -> Operand:
    """Read what a transpose, a widening or a repetition over batches was made from, in place of what it makes."""
    while True:
        before = _before(operand, element)
        if before is None or before.contiguous not in ("m", "n", "k"):
            return operand
        operand = before


def _before(operand: Operand, element: Any) -> Operand | None:
    owner = _owner(operand.value)
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
    if len(generic.operands) != 2 or len(generic.results) != 1:
        return None
    given = _narrow(block.operations[len(block.operations) - 1].operands[0])
    if given != block.arguments[0] or len(block.operations) > 2:
        return None
    source = generic.operands[0]
    widened = operand.element != source.type.element_type
    # Sums are kept in ``element``: a wider copy of the input has the same values in it. A narrower ``element``
    # than the copy's cannot be, since the copy is an operand.
    if widened and operand.element != element:
        return None
    read, written = (attribute.value for attribute in generic.attributes["indexing_maps"])
    if not all(isinstance(each, ir.AffineDimExpr) for each in written.results):
        return None
    named = {each.position: axis for each, axis in zip(written.results, operand.axes, strict=True)}
    axes = []
    for expression in read.results:
        if isinstance(expression, ir.AffineDimExpr):
            axes.append(named[expression.position])
        elif isinstance(expression, ir.AffineConstantExpr):
            axes.append(UNIT)
        else:
            return None
    dropped = set(operand.axes) - set(axes) - {UNIT}
    if len(set(axes) - {UNIT}) != len(axes) - axes.count(UNIT):
        return None
    return Operand(source, tuple(axes)) if all(axis.startswith("b") for axis in dropped) else None


def _uncollapsed(operand: Operand, collapse: Operation) -> Operand | None:
    """Look through a transpose below a collapse, where each group of dimensions lies together in the source too.

    Scores of an attention are such: ``k.transpose(-1, -2)`` of four dimensions, and then the two batches as one.
    """
    transpose = _owner(collapse.operands[0])
    if transpose is None or transpose.name != "linalg.transpose":
        return None
    tensor, ir = bindings("dialects.tensor"), bindings("ir")
    permutation = list(transpose.attributes["permutation"])
    groups = [[permutation[int(each)] for each in group] for group in collapse.attributes["reassociation"]]
    if any(group != list(range(group[0], group[0] + len(group))) for group in groups):
        return None
    order = sorted(range(len(groups)), key=lambda number: groups[number][0])
    shape = [collapse.results[0].type.shape[number] for number in order]
    result = ir.RankedTensorType.get(shape, operand.element)
    with ir.InsertionPoint(collapse), collapse.location:
        again = tensor.collapse_shape(result, transpose.operands[0], [groups[number] for number in order])
    return replace(operand, value=again, axes=tuple(operand.axes[number] for number in order))
