"""Decides which nests of a group run in the same loops, and which loop of a group is divided among threads. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmark.mlir.transforms.vectors.nests import Nest

__all__ = ["divided_row", "stages"]


def stages(nests: Sequence[Nest], rows: Sequence[int]) -> list[list[Nest]]:
    """Put nests that can run in the same loops together, in order; rows are looped over around all of them."""
    found: list[list[Nest]] = []
    for nest in nests:
        if found and (ordered := _joins(found[-1], nest, rows)) is not None:
            found[-1].append(ordered)
        else:
            found.append([nest])
    return found


def _joins(stage: Sequence[Nest], nest: Nest, rows: Sequence[int]) -> Nest | None:
    """Give ``nest`` with its loops ordered as the stage's, if it can run in them."""
    axes = stage[0].axes
    labels = [axis.label for axis in axes]
    mine = [axis.label for axis in nest.axes]
    if sorted(labels) != sorted(mine):
        return None
    nest = nest.ordered([mine.index(label) for label in labels])
    inner = [k for k, label in enumerate(labels) if label not in rows]
    every = [*stage, nest]
    carried = [k for k in inner if any(each.axes[k].reduced for each in every)]
    if any(each.reduces and not all(each.axes[k].reduced for k in carried) for each in every):
        return None  # a result would be kept for some of the carried loops only
    for member in stage:
        for write in member.writes:
            for read in nest.taken:
                if read.buffer == write.buffer and (member.reduces or read.strides != write.strides):
                    return None
    return nest


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
