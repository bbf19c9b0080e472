"""Loops and what they read and write, as numbers: a tensor is one contiguous run, an access is linear in the loops.

Seeing a tensor as its memory makes reshapes disappear: two views of the same elements have the same strides. All
pure; knows nothing of MLIR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

__all__ = ["Access", "Axis", "Bound", "contiguous_strides", "mergeable", "refinement"]


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop of a nest."""

    size: int
    reduced: bool
    """Whether the results do not depend on it: it is summed over, or the like."""
    label: int = -1
    """The same for axes of several nests that walk along the same elements; below zero before that is known."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A coordinate, ``offset + sum(stride * iv)``, that must be at least 0 and below ``size``."""

    strides: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Access:
    """Where one iteration reads or writes: element ``offset + sum(stride * iv)`` of a buffer's memory."""

    buffer: int
    strides: tuple[int, ...]
    offset: int = 0
    bounds: tuple[Bound, ...] = ()
    """Where one of these does not hold, nothing is read, and ``padding`` stands for it."""
    padding: Any = None
    """A value that is only handed on here."""

    def dense(self, axes: Sequence[Axis], size: int) -> bool:
        """Whether the axes it depends on visit each of the buffer's ``size`` elements exactly once, in any order."""
        if self.offset or self.bounds:
            return False
        reach = 1
        for stride, extent in sorted((s, a.size) for s, a in zip(self.strides, axes, strict=True) if s):
            if stride != reach:
                return False
            reach *= extent
        return reach == size

    def split(self, axis: int, inner: int) -> Access:
        """The same access where loop ``axis`` has become an outer one and an inner one of ``inner`` iterations."""

        def change(strides: tuple[int, ...]) -> tuple[int, ...]:
            stride = strides[axis]
            return (*strides[:axis], stride * inner, stride, *strides[axis + 1 :])

        return self._changed(change)

    def without(self, axis: int) -> Access:
        """The same access where loop ``axis`` is gone."""
        return self._changed(lambda strides: (*strides[:axis], *strides[axis + 1 :]))

    def ordered(self, order: Sequence[int]) -> Access:
        """The same access with its loops in another order."""
        return self._changed(lambda strides: tuple(strides[each] for each in order))

    def continues(self, outer: int, inner: int, size: int) -> bool:
        """Whether an iteration of loop ``outer`` begins where ``size`` iterations of ``inner`` end."""
        ways = (self.strides, *(bound.strides for bound in self.bounds))
        return all(strides[outer] == strides[inner] * size for strides in ways)

    def _changed(self, change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Access:
        bounds = tuple(replace(bound, strides=change(bound.strides)) for bound in self.bounds)
        return replace(self, strides=change(self.strides), bounds=bounds)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def mergeable(axes: Sequence[Axis], accesses: Iterable[Access], outer: int, inner: int) -> bool:
    """Whether two loops can be run as one: every access goes on where the inner loop ended."""
    if axes[outer].reduced != axes[inner].reduced:
        return False
    return all(each.continues(outer, inner, axes[inner].size) for each in accesses)


def refinement(first: Iterable[tuple[int, int]], second: Iterable[tuple[int, int]]) -> tuple[int, ...] | None:
    """Give the strides at which both ways of walking one buffer must be cut so that their loops match.

    Each way is given as its loops' ``(stride, size)``; both are dense. ``None`` where no cut does: 6 as 2 by 3
    and as 3 by 2.
    """
    cuts = sorted({stride for stride, _ in first} | {stride for stride, _ in second})
    for low, high in pairwise(cuts):
        if high % low:
            return None
    return tuple(cuts)
