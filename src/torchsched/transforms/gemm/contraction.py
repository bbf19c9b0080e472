"""Recognises products of matrices in linalg on tensors: which loops there are, and what the sums begin with.

Where operands lie in memory is :mod:`torchsched.transforms.gemm.operands`'. It writes no loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from torchsched.bindings import Operation, bindings
from torchsched.transforms.gemm.axes import UNIT, Part, final_names, grouped, joined, named, parts_of
from torchsched.transforms.gemm.operands import Operand, narrow, owner_of, through_producers, viewed

__all__ = ["Contraction", "constant_zero", "is_product", "match_contraction"]

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


@dataclass(frozen=True, slots=True)
class Contraction:
    """``out[b, m, n] = initial + sum over k of lhs[b, m, k] * rhs[b, k, n]``, each in a memory order of its own."""

    op: Operation
    lhs: Operand
    rhs: Operand
    out: tuple[str, ...]
    """The loops over the result seen with joined loops and without units; neighbours lie along the last one."""
    groups: tuple[tuple[int, ...], ...]
    """For each of them, the dimensions of the result as it is."""
    loops: tuple[Part | None, ...]
    """For each dimension of the result as it is, which part of a loop runs over it; ``None`` over one element."""
    initial: Value | None
    """What the sums begin with: ``None`` for zero, a number, or a tensor that is seen as the result is."""
    sizes: Mapping[str, int]
    """The turns of each loop; ``m``, ``n`` and ``k`` are always among them."""

    @property
    def element(self) -> Any:
        """The type that sums are kept in."""
        return self.op.results[0].type.element_type

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result as ``out`` sees it."""
        return tuple(self.sizes.get(axis, 1) for axis in self.out)

    @property
    def batch(self) -> tuple[str, ...]:
        """The batch loops, the outermost first."""
        return tuple(axis for axis in self.out if axis.startswith("b"))

    @property
    def batches(self) -> int:
        """How many products there are."""
        return prod(self.sizes[axis] for axis in self.batch)


def is_product(op: Operation) -> bool:
    """Say whether ``op`` multiplies matrices, in shapes and types that may or may not be served here."""
    return _named(op) is not None


def match_contraction(op: Operation) -> Contraction | None:
    """Read ``op`` as a product of matrices; ``None`` where it is none that this package can write.

    The operands are named so that neighbours in the result are neighbours along ``n``. Views of the operands may be
    written before ``op``.
    """
    names = _named(op)
    if names is None or not _is_computed(op):
        return None
    sizes: dict[str, int] = {}
    values = list(op.operands)
    for value, axes in zip(values, names, strict=True):
        if any(size < 1 for size in value.type.shape):  # dynamic, or nothing to compute
            return None
        sizes.update(zip(axes, value.type.shape, strict=True))
    element = op.results[0].type.element_type
    lhs, rhs = (
        through_producers(Operand(value, axes), element)
        for value, axes in zip(values[:2], names[:2], strict=True)
    )
    out = Operand(values[2], names[2])
    orders = [[axis for axis in each.axes if sizes.get(axis, 1) != 1] for each in (lhs, rhs, out)]
    groups = joined(orders)
    final = final_names(groups, orders)
    if final is None:
        return None
    last = [axis for axis in orders[2] if axis in groups][-1:]
    if last and final[last[0]] == "m":  # the product of the transposes is the transpose
        lhs, rhs = rhs, lhs
        final = {axis: {"m": "n", "n": "m"}.get(name, name) for axis, name in final.items()}
    parts = parts_of(groups, sizes, final)
    lengths = {final[axis]: prod(sizes[member] for member in members) for axis, members in groups.items()}
    return _seen(op, (lhs, rhs, out), parts, {"m": 1, "n": 1, "k": 1, **lengths})


def constant_zero(value: Value) -> bool:
    """Say whether ``value`` is the constant zero; minus zero is one too, as a sum's beginning."""
    owner = owner_of(value)
    if owner is None or owner.name != "arith.constant":
        return False
    attribute = owner.attributes["value"]
    return hasattr(attribute, "value") and attribute.value == 0


def _seen(
    op: Operation,
    operands: tuple[Operand, Operand, Operand],
    parts: Mapping[str, Part],
    sizes: Mapping[str, int],
) -> Contraction | None:
    """Put a contraction together, with views of what it reads; ``None`` where that cannot be read as vectors."""
    joined_as = {axis: part.axis for axis, part in parts.items()}
    lhs, rhs, out = operands
    last = [grouped(each.axes, joined_as)[0][-1:] for each in operands]
    for axes, own in zip(last[:2], ("m", "n"), strict=True):
        if axes not in ((own,), ("k",), (UNIT,)) and not sizes[own] == sizes["k"] == 1:
            return None
    # Numbers can be written anywhere, vectors only along the last dimension.
    if last[2] not in (("n",), (UNIT,)) and not (sizes["m"] == sizes["n"] == 1 and last[1] == ("k",)):
        return None
    initial = _initial(out.value)
    if hasattr(getattr(initial, "type", None), "shape"):
        initial = viewed(Operand(initial, out.axes), joined_as, op).value
    names, groups = grouped(out.axes, joined_as)
    return Contraction(
        op,
        viewed(lhs, joined_as, op),
        viewed(rhs, joined_as, op),
        names,
        tuple(map(tuple, groups)),
        tuple(parts.get(axis) for axis in out.axes),
        initial,
        sizes,
    )


def _initial(value: Value) -> Value | None:
    owner = owner_of(value)
    if owner is None or owner.name != "linalg.fill":
        return value
    number = owner.operands[0]
    return None if constant_zero(number) else number


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
    return None if maps is None or len(maps) != 3 else named(*maps)


def _is_computed(op: Operation) -> bool:
    """Whether vectors can add up in the result's type, and hold both operands' numbers in it."""
    total = str(op.results[0].type.element_type)
    served = {"f64": _FLOATS, "f32": _FLOATS[1:], "i64": _INTEGERS, "i32": _INTEGERS[1:]}.get(total, ())
    return all(str(value.type.element_type) in served for value in list(op.operands)[:2])


def _sums_products(op: Operation) -> bool:
    """Whether the body is ``out + a * b``, where ``a`` and ``b`` may be widened first."""
    block = op.regions[0].blocks[0]
    if len(block.arguments) != 3:
        return False
    a, b, out = block.arguments
    body = list(block.operations)
    if body[-1].operation.name != "linalg.yield" or len(body) > 5:
        return False
    total = owner_of(body[-1].operands[0])
    if total is None or total.name not in ("arith.addf", "arith.addi"):
        return False
    terms = list(total.operands)
    if out not in terms:
        return False
    product = owner_of(terms[1] if terms[0] == out else terms[0])
    if product is None or product.name not in ("arith.mulf", "arith.muli"):
        return False
    factors = [narrow(each) for each in product.operands]
    return factors in ([a, b], [b, a])


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
