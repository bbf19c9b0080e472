"""A loop nest: its loops, what it reads, what it writes, and how each result accumulates.

Pure: a nest may be split, merged and reordered here, and grouped and planned elsewhere, with numbers alone. What
an iteration computes is the body, which only :mod:`torchsched.transforms.vectors.bodies` looks into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from torchsched.transforms.vectors.accesses import Access, Axis, mergeable

__all__ = ["Body", "Combiner", "Nest", "Start", "simplified"]


class Combiner(StrEnum):
    """How a result takes in one more value, where the order may be changed; the names are MLIR's reduction kinds."""

    ADD = "add"
    MUL = "mul"
    AND = "and"
    OR = "or"
    XOR = "xor"
    MAX_FLOAT = "maximumf"
    MIN_FLOAT = "minimumf"
    MAX_NUMBER = "maxnumf"
    MIN_NUMBER = "minnumf"
    MAX_SIGNED = "maxsi"
    MIN_SIGNED = "minsi"
    MAX_UNSIGNED = "maxui"
    MIN_UNSIGNED = "minui"
    PLACE = "place"
    """Where the extreme value of the result before this one was first met."""

    @property
    def rounds(self) -> bool:
        """Whether many values added one by one lose accuracy in floating point."""
        return self in (Combiner.ADD, Combiner.MUL)


class Start(StrEnum):
    """What a result is before the first iteration."""

    NOTHING = "nothing"
    """It is written without having been read."""
    VALUE = "value"
    """One value for all its elements."""
    TENSOR = "tensor"


@dataclass(frozen=True, slots=True)
class Body:
    """What the planner must know of the computation of one iteration."""

    combiners: tuple[Combiner | None, ...]
    """One a result; ``None`` where iterations must run in order."""
    operations: int = 0
    """How many operations that a vector unit does directly."""
    functions: int = 0
    """How many calls of functions such as exp."""
    maskable: bool = True
    """Whether lanes beyond the end may be computed and dropped; a division by an integer may not."""
    element_bits: int = 32
    """Of the widest floating-point type computed with, or of the widest type where there is none."""


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops over which one operation runs."""

    axes: tuple[Axis, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    starts: tuple[Start, ...]
    initial: tuple[Access | None, ...]
    """What a result starts from where that is a tensor."""
    indices: tuple[Access, ...]
    """The operation's own loop counters that its body asks for; that of loop ``d`` has buffer ``-1 - d``."""
    body: Body
    picks: tuple[Access, ...] = ()
    """What the body reads at places that are linear in its loop counters, without being an operand."""
    picked: tuple[Any, ...] = ()
    """The operations in the body that do so."""
    gathers: tuple[int, ...] = ()
    """Buffers that the body reads at any other places."""
    operation: Any = None

    @property
    def accesses(self) -> tuple[Access, ...]:
        """All accesses, the counters included."""
        return (*self.taken, *self.writes, *self.indices)

    @property
    def taken(self) -> tuple[Access, ...]:
        """What is read."""
        return (*self.reads, *self.picks, *(each for each in self.initial if each))

    @property
    def iterations(self) -> int:
        """How often the body runs."""
        product = 1
        for axis in self.axes:
            product *= axis.size
        return product

    @property
    def reduces(self) -> bool:
        """Whether any loop is reduced."""
        return any(axis.reduced for axis in self.axes)

    def split(self, axis: int, inner: int) -> Nest:
        """Run loop ``axis`` as an outer loop over blocks of ``inner`` iterations."""
        old = self.axes[axis]
        pair = (replace(old, size=old.size // inner), replace(old, size=inner))
        axes = (*self.axes[:axis], *pair, *self.axes[axis + 1 :])
        return self.changed(axes, lambda access: access.split(axis, inner))

    def merged(self, outer: int, inner: int) -> Nest:
        """Run loops ``outer`` and ``inner`` as one; see :func:`mergeable`."""
        both = replace(self.axes[inner], size=self.axes[outer].size * self.axes[inner].size)
        axes = tuple(both if k == inner else axis for k, axis in enumerate(self.axes) if k != outer)
        return self.changed(axes, lambda access: access.without(outer))

    def without(self, axis: int) -> Nest:
        """Drop a loop that runs once."""
        axes = (*self.axes[:axis], *self.axes[axis + 1 :])
        return self.changed(axes, lambda access: access.without(axis))

    def ordered(self, order: Sequence[int]) -> Nest:
        """Put the loops into another order."""
        return self.changed(tuple(self.axes[k] for k in order), lambda access: access.ordered(order))

    def labelled(self, labels: Sequence[int]) -> Nest:
        """Give each loop its label."""
        axes = tuple(replace(axis, label=label) for axis, label in zip(self.axes, labels, strict=True))
        return replace(self, axes=axes)

    def changed(self, axes: tuple[Axis, ...], change: Callable[[Access], Access]) -> Nest:
        """Give the nest with other axes, and every access changed."""
        return replace(
            self,
            axes=axes,
            reads=tuple(map(change, self.reads)),
            writes=tuple(map(change, self.writes)),
            picks=tuple(map(change, self.picks)),
            indices=tuple(map(change, self.indices)),
            initial=tuple(each and change(each) for each in self.initial),
        )


def simplified(nest: Nest) -> Nest:
    """Drop loops that run once and run as one those that can be, so that a nest has as few loops as it needs."""
    for axis in reversed(range(len(nest.axes))):
        if nest.axes[axis].size == 1:
            nest = nest.without(axis)
    changed = True
    while changed:
        changed = False
        for outer in range(len(nest.axes)):
            for inner in range(len(nest.axes)):
                if outer != inner and mergeable(nest.axes, nest.accesses, outer, inner):
                    nest, changed = nest.merged(outer, inner), True
                    break
            if changed:
                break
    return nest
