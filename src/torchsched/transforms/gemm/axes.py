"""The loops of a product as names: which loop runs over which dimension, and which loops are one.

A name begins with what the loop is: ``b`` over a batch, ``m`` over rows, ``n`` over columns, ``k`` over the sum. Pure:
knows sizes and orders, and no MLIR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["UNIT", "Part", "final_names", "grouped", "joined", "named", "parts_of"]

UNIT = "unit"
"""The name over dimensions of one element, which no loop runs over."""

_KINDS = {
    (True, True, True): "b",
    (True, False, True): "m",
    (False, True, True): "n",
    (True, True, False): "k",
}
"""What a loop is, by whether it runs over the left operand, the right one and the result."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the loops that a joined loop stands for: ``index = joined // stride % size``."""

    axis: str
    """The joined loop."""
    stride: int
    size: int


def named(lhs: Sequence[int], rhs: Sequence[int], out: Sequence[int]) -> tuple[tuple[str, ...], ...] | None:
    """Name the loops over the dimensions of both operands and of the result.

    ``None`` where a loop runs over one of the three alone: that is no product of matrices.
    """
    names = {}
    for dim in {*lhs, *rhs, *out}:
        kind = _KINDS.get((dim in lhs, dim in rhs, dim in out))
        if kind is None:
            return None
        names[dim] = f"{kind}{dim}"
    return tuple(tuple(names[dim] for dim in dims) for dims in (lhs, rhs, out))


def joined(orders: Sequence[Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Join loops of one kind that follow each other wherever they are: together they run over memory like one.

    Args:
        orders: For each operand and the result, the loops over its dimensions, without units.

    Returns:
        The loops that each one left stands for, the outermost first; it has the first one's name.
    """
    now = [list(order) for order in orders]
    groups: dict[str, tuple[str, ...]] = {axis: (axis,) for order in orders for axis in order}
    while (pair := _pair(now)) is not None:
        first, second = pair
        groups[first] += groups.pop(second)
        for order in now:
            if second in order:
                order.remove(second)
    return groups


def final_names(
    groups: Mapping[str, Sequence[str]], orders: Sequence[Sequence[str]]
) -> dict[str, str] | None:
    """Name joined loops ``m``, ``n`` and ``k``, and batches; ``None`` where the sum runs over more than one.

    Of several loops over rows, or over columns, one along which neighbours lie side by side stays, or else the
    innermost; the others are batches, of products with one right, or left, operand.
    """
    left, right, out = ([axis for axis in order if axis in groups] for order in orders)
    if sum(axis.startswith("k") for axis in groups) > 1:
        return None
    names = {axis: "k" if axis.startswith("k") else f"b{axis}" for axis in groups}
    for kind, operand in (("m", left), ("n", right)):
        own = [axis for axis in out if axis.startswith(kind)]
        kept = [axis for axis in (*out[-1:], *operand[-1:], *own[-1:]) if axis in own]
        if kept:
            names[kept[0]] = kind
    return names


def parts_of(
    groups: Mapping[str, Sequence[str]], sizes: Mapping[str, int], names: Mapping[str, str]
) -> dict[str, Part]:
    """Say which part of a joined loop, by its final name, each loop is."""
    parts = {}
    for axis, members in groups.items():
        stride = 1
        for member in reversed(members):
            parts[member] = Part(names[axis], stride, sizes[member])
            stride *= sizes[member]
    return parts


def grouped(axes: Sequence[str], joined_as: Mapping[str, str]) -> tuple[tuple[str, ...], list[list[int]]]:
    """Give the joined loops over a tensor, and for each the dimensions that become one; units join a neighbour.

    Args:
        axes: The loop over each dimension.
        joined_as: The joined loop that each is part of; one that is not there is a unit.
    """
    names: list[str] = []
    groups: list[list[int]] = []
    for number, axis in enumerate(axes):
        name = joined_as.get(axis, UNIT)
        if names and (name == UNIT or name == names[-1]):
            groups[-1].append(number)
        elif names == [UNIT]:
            names, groups = [name], [[*groups[0], number]]
        else:
            names.append(name)
            groups.append([number])
    return tuple(names), groups


def _pair(orders: Sequence[Sequence[str]]) -> tuple[str, str] | None:
    for order in orders:
        for first, second in pairwise(order):
            if first[0] == second[0] and all(_follows(first, second, each) for each in orders):
                return first, second
    return None


def _follows(first: str, second: str, order: Sequence[str]) -> bool:
    if first not in order or second not in order:
        return first not in order and second not in order
    return order.index(second) == order.index(first) + 1
