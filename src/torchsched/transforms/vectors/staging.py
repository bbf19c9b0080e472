"""Decides which nests of a group run in the same loops, and which loop of a group is divided among threads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torchsched.transforms.vectors.accesses import Access
from torchsched.transforms.vectors.nests import Nest

__all__ = ["Together", "divided_row", "stages"]


@dataclass(frozen=True, slots=True)
class Together:
    """Nests that run in the same loops; the axes of all stand in the same order."""

    nests: tuple[Nest, ...]
    after: tuple[Nest, ...] = ()
    """Elementwise nests that take the others' results as they leave the loops they are carried through."""

    @property
    def every(self) -> tuple[Nest, ...]:
        """All of them, in order."""
        return (*self.nests, *self.after)


def stages(nests: Sequence[Nest], rows: Sequence[int]) -> list[Together]:
    """Put nests that can run in the same loops together, in order; rows are looped over around all of them."""
    found: list[Together] = []
    for nest in nests:
        joined = _joined(found[-1], nest, rows) if found else None
        if joined is None:
            found.append(Together((nest,)))
        else:
            found[-1] = joined
    return found


def _joined(stage: Together, nest: Nest, rows: Sequence[int]) -> Together | None:
    """Give the stage with ``nest`` in it, if that can be."""
    axes = stage.nests[0].axes
    labels = [axis.label for axis in axes]
    mine = [axis.label for axis in nest.axes]
    if sorted(labels) == sorted(mine) and not stage.after:
        nest = nest.ordered([mine.index(label) for label in labels])
        if _in_step((*stage.nests, nest), rows) and _handed_over(stage.every, nest):
            return replace(stage, nests=(*stage.nests, nest))
    carried = {k for k in range(len(axes)) if any(each.axes[k].reduced for each in stage.nests)}
    kept = [label for k, label in enumerate(labels) if k not in carried]
    whole = all(each.reduces for each in stage.nests)
    if not carried or not whole or nest.reduces or sorted(kept) != sorted(mine):
        return None
    nest = _widened(nest, stage.nests[0])
    return replace(stage, after=(*stage.after, nest)) if _handed_over(stage.every, nest, last=True) else None


def _in_step(nests: Sequence[Nest], rows: Sequence[int]) -> bool:
    """Whether each result is kept through all of the loops that any is carried through, or through none."""
    axes = nests[0].axes
    inner = [k for k in range(len(axes)) if axes[k].label not in rows]
    carried = [k for k in inner if any(each.axes[k].reduced for each in nests)]
    return all(not each.reduces or all(each.axes[k].reduced for k in carried) for each in nests)


def _handed_over(before: Sequence[Nest], nest: Nest, *, last: bool = False) -> bool:
    """Whether ``nest`` reads of the others' results only the element of its own iteration, once it is finished."""
    for member in before:
        for write in member.writes:
            for read in nest.taken:
                early = member.reduces and not last
                if read.buffer == write.buffer and (early or read.strides != write.strides):
                    return False
    return True


def _widened(nest: Nest, like: Nest) -> Nest:
    """Give a nest the axes of another that has more; it does not move along those it lacks."""
    mine = [axis.label for axis in nest.axes]
    places = [mine.index(axis.label) if axis.label in mine else None for axis in like.axes]

    def spread(strides: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(0 if place is None else strides[place] for place in places)

    def change(access: Access) -> Access:
        bounds = tuple(replace(bound, strides=spread(bound.strides)) for bound in access.bounds)
        return replace(access, strides=spread(access.strides), bounds=bounds)

    axes = tuple(
        replace(axis, reduced=False) if place is None else nest.axes[place]
        for axis, place in zip(like.axes, places, strict=True)
    )
    return nest.changed(axes, change)


def divided_row(sizes: Sequence[int], work: int, threads: int, grain: int) -> int | None:
    """Choose the row loop that is divided among threads: its position, or ``None`` for one thread.

    Args:
        sizes: Of the row loops, the outermost first.
        work: Elements touched by the whole group.
        threads: How many there are.
        grain: Elements below which starting the threads takes longer than they save.
    """
    if threads < 2 or work < grain or not sizes or max(sizes) < 2:
        return None
    for position, size in enumerate(sizes):
        if size >= threads and (size % threads == 0 or size >= 8 * threads):
            return position
    return list(sizes).index(max(sizes))
