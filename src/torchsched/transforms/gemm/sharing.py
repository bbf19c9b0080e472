"""Shares work out: batches over threads or one after the other, ranges in equal parts, memory of a thread's own.

Knows that a kernel computes one product of a batch, and nothing of how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from torchsched.transforms.gemm.emit import Emitter, Index, Slice, Value
from torchsched.transforms.gemm.product import Place, Product

__all__ = ["Kernel", "Space", "over_batches", "part_of"]

Kernel: TypeAlias = Callable[[Mapping[str, Index], Sequence[Value], Sequence[Place]], "list[Value]"]
"""Writes one product: takes the batch loops' indices, the spaces, and where results go; gives the last two, written."""


@dataclass(frozen=True, slots=True)
class Space:
    """Memory that one thread works in."""

    shape: tuple[int, ...]
    element: Any

    def empty(self, e: Emitter, copies: int = 1) -> Value:
        """Make it, for one thread or with a copy for each of several."""
        return e.empty(self.shape if copies == 1 else (copies, *self.shape), self.element)

    def copy_of(self, e: Emitter, copies: Value, number: Index) -> Slice:
        """Take one thread's copy."""
        rank = len(self.shape)
        offsets, sizes = [number, *[0] * rank], [1, *self.shape]
        return e.slice(copies, offsets, sizes, drop=[0]), offsets, sizes


def part_of(e: Emitter, whole: tuple[Index, Index], number: Index, parts: int) -> tuple[Index, Index]:
    """Cut a range into equal parts, and give one of them."""
    begin, end = whole
    count = e.sub(end, begin)
    lower = e.div(e.mul(number, count), parts)
    upper = e.div(e.mul(e.add(number, 1), count), parts)
    return e.add(begin, lower), e.add(begin, upper)


def over_batches(
    e: Emitter, product: Product, threads: int, spaces: Sequence[tuple[Space, int]], kernel: Kernel
) -> Value:
    """Write ``kernel`` for every product of the batch; give the results.

    Args:
        e: Writes.
        product: What is computed.
        threads: How many of them share the batches; with one, a kernel may be parallel itself.
        spaces: The memory that a kernel works in, and how many copies of each it needs.
        kernel: Computes one product.
    """
    axes = product.contraction.out
    result = e.empty(product.contraction.shape, product.result_element)
    begin = [space.empty(e, copies if threads == 1 else threads) for space, copies in spaces]
    if threads == 1:
        whole = {axis: (0, product.contraction.sizes[axis]) for axis in product.contraction.batch}
        return _in_turn(e, whole, kernel, begin, Place(result, axes, {}))[-1]
    shared = max(product.contraction.batch, key=lambda axis: product.contraction.sizes[axis])

    def worker(numbers: Sequence[Index], outs: Sequence[Value]) -> list[Slice]:
        ranges = {axis: (0, product.contraction.sizes[axis]) for axis in product.contraction.batch}
        ranges[shared] = part_of(e, ranges[shared], numbers[0], threads)
        lower, upper = ranges[shared]
        offsets = [lower if axis == shared else 0 for axis in axes]
        sizes = [
            e.sub(upper, lower) if axis == shared else size
            for axis, size in zip(axes, product.contraction.shape, strict=True)
        ]
        mine = [
            space.copy_of(e, copies, numbers[0]) for (space, _), copies in zip(spaces, outs, strict=False)
        ]
        part = Place(e.slice(outs[-1], offsets, sizes), axes, {shared: lower})
        done = _in_turn(e, ranges, kernel, [value for value, *_ in mine], part)
        where = [(offsets, sizes) for _, offsets, sizes in mine]
        return [(value, at, size) for value, (at, size) in zip(done, [*where, (offsets, sizes)], strict=True)]

    return e.forall([threads], [*begin, result], worker)[-1]


def _in_turn(
    e: Emitter,
    ranges: Mapping[str, tuple[Index, Index]],
    kernel: Kernel,
    spaces: Sequence[Value],
    place: Place,
) -> list[Value]:
    """Write loops over the batches around the kernel."""
    count = len(spaces)

    def nested(rest: Sequence[str], at: Mapping[str, Index], values: Sequence[Value]) -> list[Value]:
        if not rest:
            return kernel(at, values[:count], [replace(place, value=values[-1])])
        axis, *others = rest
        return e.carry((*ranges[axis], 1), values, lambda i, *now: nested(others, {**at, axis: i}, now))

    return nested(list(ranges), {}, [*spaces, place.value])
