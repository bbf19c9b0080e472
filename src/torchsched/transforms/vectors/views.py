"""Looks through reshapes, slices and padding to the tensor whose memory is read.

An access is linear in the loops, in the memory that a value would have. Through a slice or a padding it stays
linear if each of the value's coordinates can be told from it, which is checked by the coordinates' ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchsched.transforms.vectors.accesses import Bound, contiguous_strides

__all__ = ["VIEWS", "Seen", "look_through", "root_of"]

Value = Any

RESHAPES = frozenset({"tensor.expand_shape", "tensor.collapse_shape"})
"""They change a tensor's shape and leave its elements where they are."""
VIEWS = RESHAPES | {"tensor.extract_slice", "tensor.pad"}
_DYNAMIC = -(1 << 63)


@dataclass(frozen=True, slots=True)
class Seen:
    """What an access reads in truth."""

    root: Value
    strides: tuple[int, ...]
    offset: int
    bounds: tuple[Bound, ...] = ()
    """Where these do not hold, ``fill`` is read."""
    fill: Value | None = None


def root_of(value: Value, kinds: frozenset[str] = VIEWS) -> Value:
    """Give the tensor that ``value`` is a view of, or ``value``."""
    owner = value.owner
    while hasattr(owner, "opview") and owner.name in kinds:
        value = owner.operands[0]
        owner = value.owner
    return value


def look_through(value: Value, strides: Sequence[int], offset: int, sizes: Sequence[int]) -> Seen | None:
    """Follow an access to the tensor behind all views; ``None`` where it is not linear there."""
    seen = Seen(value, tuple(strides), offset)
    while hasattr(seen.root.owner, "opview") and seen.root.owner.name in VIEWS:
        operation = seen.root.owner
        if operation.name in RESHAPES:
            seen = Seen(operation.operands[0], seen.strides, seen.offset, seen.bounds, seen.fill)
            continue
        through = _slice if operation.name == "tensor.extract_slice" else _pad
        following = through(operation, seen, sizes)
        if following is None:
            return None
        seen = following
    return seen


def _slice(operation: Any, seen: Seen, sizes: Sequence[int]) -> Seen | None:
    source = operation.operands[0]
    offsets, lengths, steps = (
        [int(each) for each in operation.attributes[f"static_{name}"]]
        for name in ("offsets", "sizes", "strides")
    )
    if _DYNAMIC in (*offsets, *lengths, *steps) or not source.type.has_static_shape:
        return None
    coordinates = _coordinates(seen, sizes, lengths)
    if coordinates is None:
        return None
    inside = contiguous_strides(list(source.type.shape))
    at = sum(o * s for o, s in zip(offsets, inside, strict=True))
    return _placed(seen, source, coordinates, [step * s for step, s in zip(steps, inside, strict=True)], at)


def _pad(operation: Any, seen: Seen, sizes: Sequence[int]) -> Seen | None:
    source = operation.operands[0]
    low = [int(each) for each in operation.attributes["static_low"]]
    high = [int(each) for each in operation.attributes["static_high"]]
    fill = _padding(operation)
    negative = any(each < 0 for each in (*low, *high))
    if seen.bounds or fill is None or negative or not source.type.has_static_shape:
        return None
    coordinates = _coordinates(seen, sizes, list(operation.results[0].type.shape))
    if coordinates is None:
        return None
    shape = list(source.type.shape)
    inside = contiguous_strides(shape)
    at = -sum(p * s for p, s in zip(low, inside, strict=True))
    bounds = tuple(
        Bound(tuple(steps), first - before, size)
        for (steps, first), before, after, size in zip(coordinates, low, high, shape, strict=True)
        if before or after
    )
    placed = _placed(seen, source, coordinates, inside, at)
    return Seen(placed.root, placed.strides, placed.offset, bounds, fill)


def _placed(
    seen: Seen, source: Value, coordinates: list[tuple[list[int], int]], strides: Sequence[int], at: int
) -> Seen:
    """Give the access in the source, where each coordinate moves by its stride."""
    moves = tuple(
        sum(steps[k] * stride for (steps, _), stride in zip(coordinates, strides, strict=True))
        for k in range(len(seen.strides))
    )
    offset = at + sum(first * stride for (_, first), stride in zip(coordinates, strides, strict=True))
    return Seen(source, moves, offset, seen.bounds, seen.fill)


def _coordinates(
    seen: Seen, sizes: Sequence[int], shape: Sequence[int]
) -> list[tuple[list[int], int]] | None:
    """Tell a linear access apart into coordinates of ``shape``: the loops' steps and the first value of each.

    A way to write a number in the mixed base of the shape whose digits stay in range is the only one.
    """
    steps: list[list[int]] = [[] for _ in shape]
    firsts = []
    for stride in (*seen.strides, seen.offset):
        digits, left = [], abs(stride)
        for place in contiguous_strides(shape):
            digit, left = divmod(left, place) if place else (0, left)
            digits.append(digit if stride >= 0 else -digit)
        if left:
            return None
        firsts = digits
        for each, digit in zip(steps, digits, strict=True):
            each.append(digit)
    found = [(each[:-1], first) for each, first in zip(steps, firsts, strict=True)]
    for (moves, first), size in zip(found, shape, strict=True):
        reach = [step * (extent - 1) for step, extent in zip(moves, sizes, strict=True)]
        lowest = first + sum(each for each in reach if each < 0)
        highest = first + sum(each for each in reach if each > 0)
        if lowest < 0 or highest >= size:
            return None
    return found


def _padding(operation: Any) -> Value | None:
    """Give the value that a padding fills in, if it is one value from outside."""
    block = operation.regions[0].blocks[0]
    if len(list(block.operations)) != 1:
        return None
    value = next(iter(block.operations)).operation.operands[0]
    return value if value.owner != block else None


def views_of(value: Value) -> Iterator[Any]:
    """Give the operations between a value and its root."""
    owner = value.owner
    while hasattr(owner, "opview") and owner.name in VIEWS:
        yield owner
        value = owner.operands[0]
        owner = value.owner
