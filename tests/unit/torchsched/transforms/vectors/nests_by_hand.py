"""Nests built from numbers: loops, and strides of what they read and write."""

from __future__ import annotations

from collections.abc import Sequence

from torchsched.transforms.vectors.accesses import Access, Axis
from torchsched.transforms.vectors.nests import Body, Combiner, Nest, Start

X, Y, Z, W, OUT = range(5)
"""Buffers."""


def nest(
    sizes: Sequence[int],
    reads: dict[int, Sequence[int]] | Sequence[tuple[int, Sequence[int]]],
    write: tuple[int, Sequence[int]],
    *,
    combiner: Combiner | None = Combiner.ADD,
    functions: int = 0,
    maskable: bool = True,
    element_bits: int = 32,
) -> Nest:
    """Build a nest; a loop that the result does not move along is reduced."""
    pairs = list(reads.items()) if isinstance(reads, dict) else list(reads)
    reduced = [not stride for stride in write[1]]
    return Nest(
        axes=tuple(Axis(size, each) for size, each in zip(sizes, reduced, strict=True)),
        reads=tuple(Access(buffer, tuple(strides)) for buffer, strides in pairs),
        writes=(Access(write[0], tuple(write[1])),),
        starts=(Start.VALUE if any(reduced) else Start.NOTHING,),
        initial=(None,),
        indices=(),
        body=Body(
            combiners=(combiner if any(reduced) else None,),
            operations=len(pairs),
            functions=functions,
            maskable=maskable,
            element_bits=element_bits,
        ),
    )


def elementwise(sizes: Sequence[int], source: int, result: int, strides: Sequence[int] = ()) -> Nest:
    """Build a nest that writes a tensor element by element, the last loop the fastest, and reads another alike."""
    own, step = [], 1
    for size in reversed(sizes):
        own.append(step)
        step *= size
    own.reverse()
    return nest(sizes, {source: strides or own}, (result, own))


def sum_of_rows(rows: int, columns: int, source: int, result: int) -> Nest:
    """Build a sum over the last of two dimensions."""
    return nest([rows, columns], {source: (columns, 1)}, (result, (1, 0)))
