"""Where a buffer's elements are while a group of nests runs: in a tensor, in a small one of its own, in a register.

Turns an access into indices. Knows loops by label only, and nothing of the order they run in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchsched.transforms.vectors.accesses import Access, Axis
from torchsched.transforms.vectors.writing import Index, Writer

__all__ = ["Given", "Held", "Kept", "Passed", "Place", "Position"]

Value = Any


@dataclass(frozen=True, slots=True)
class Position:
    """Where a group stands: for each label, the iteration that its innermost loop counts from."""

    base: Mapping[int, Index]
    origin: Mapping[int, Index]
    """The iteration that the tensors written here begin at."""


@dataclass(slots=True)
class Given:
    """A tensor from outside, flat."""

    tensor: Value

    def indices(
        self, writer: Writer, access: Access, axes: tuple[Axis, ...], ivs: Mapping[int, Index], at: Position
    ) -> list[Index]:
        """Give the indices that an access means."""
        total: Index = access.offset
        for k, stride in enumerate(access.strides):
            if stride:
                iteration = writer.add(at.base.get(axes[k].label, 0), ivs.get(k, 0))
                total = writer.add(total, writer.times(iteration, stride))
        return [total]


@dataclass(slots=True)
class Kept:
    """A tensor that the group writes and hands on: one dimension for each loop that it depends on."""

    tensor: Value
    dimensions: tuple[tuple[int, int], ...]
    """Label and stride of each."""

    def indices(
        self, writer: Writer, access: Access, axes: tuple[Axis, ...], ivs: Mapping[int, Index], at: Position
    ) -> list[Index]:
        """Give the indices that an access means."""
        found = []
        for label, stride in self.dimensions:
            k = access.strides.index(stride)
            base = writer.sub(at.base.get(label, 0), at.origin.get(label, 0))
            found.append(writer.add(base, ivs.get(k, 0)))
        return found or [0]


@dataclass(slots=True)
class Passed:
    """What one row, or one block of rows, hands from nest to nest: a flat tensor used over and over."""

    tensor: Value
    steps: Mapping[int, int]
    """Stride in it, by the stride in the whole buffer."""

    def indices(
        self, writer: Writer, access: Access, axes: tuple[Axis, ...], ivs: Mapping[int, Index], at: Position
    ) -> list[Index]:
        """Give the indices that an access means."""
        del axes, at
        total: Index = 0
        for k, stride in enumerate(access.strides):
            if stride and self.steps.get(stride):
                total = writer.add(total, writer.times(ivs.get(k, 0), self.steps[stride]))
        return [total]

    def stride(self, whole: int) -> int:
        """Give the step in here of a loop that has stride ``whole`` in the whole buffer."""
        return self.steps.get(whole, 0)


@dataclass(slots=True)
class Held:
    """One value of the row at hand."""

    value: Value | None = None


Place = Given | Kept | Passed | Held
