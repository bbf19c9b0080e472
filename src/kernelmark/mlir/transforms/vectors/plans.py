"""Chooses how a nest is run: along which loop its vectors lie, how many at once, what is kept in registers.

Pure functions of sizes and strides; the costs are relative and only order the choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelmark.mlir.transforms.vectors.accesses import Axis
from kernelmark.mlir.transforms.vectors.nests import Combiner, Nest

__all__ = ["Choices", "LoopPlan", "plan_loops", "plan_threads", "stages"]


@dataclass(frozen=True, slots=True)
class Choices:
    """What a schedule may set, and a search may try."""

    vector_bits: int = 128
    unroll: int = 4
    """Vectors computed side by side where an iteration is a few operations."""
    partials: int = 4
    """Vectors that a reduction along its own loop keeps, each a partial result."""
    jam: int = 6
    """Neighbouring iterations that share what they read, where results stay in registers over a reduction."""
    registers: int = 32
    """Vector registers of the machine; a plan keeps a few free."""
    block: int = 64
    """Rows taken together where they lie side by side in memory."""
    cascade: int = 512
    """Additions after which a partial sum is put aside, so that rounding does not grow with the length."""


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """How the nests of one stage run; loops are given as positions among the stage's axes."""

    vector: int | None
    """The loop that vectors lie along; ``None``: one element after the other."""
    width: int
    """Elements of a vector."""
    unroll: int
    jam: int | None
    jam_by: int
    parallel: tuple[int, ...]
    """Loops around everything, the outermost first; without the vector's and the jammed one."""
    carried: tuple[int, ...]
    """Loops that results are carried through, the outermost first; with the vector's where it is one of them."""
    masked: bool
    """Whether what is left over after whole vectors is done under a mask, rather than one by one."""
    cascade: int = 0
    """Iterations of the innermost carried loop after which partial results are put aside; 0 for never."""


_STRIDED, _SCATTERED, _GATHERED, _FUNCTION = 4, 48, 24, 20
"""Costs of a vector of 16, in operations: read in small steps, written or read one by one, a function of it."""


def plan_loops(
    nests: Sequence[Nest], choices: Choices, extents: Sequence[int | None] | None = None
) -> LoopPlan:
    """Choose how nests with the same loops run as one.

    Args:
        nests: Their axes stand in the same order; a loop may be reduced in one and not in another.
        choices: The schedule's parameters.
        extents: Iterations of each loop as run; ``None`` where that is known only when the code runs.
    """
    axes = nests[0].axes
    carried = [k for k in range(len(axes)) if any(nest.axes[k].reduced for nest in nests)]
    bits = max(nest.body.element_bits for nest in nests)
    most = max(1, choices.vector_bits // bits)
    options = [(_cost(nests, k, carried, most), k) for k in range(len(axes)) if axes[k].size > 1]
    options = [each for each in options if each[0] is not None]
    cost, vector = min(options, default=(None, None))  # type: ignore[type-var]
    one = sum(
        len(nest.reads) + len(nest.writes) + nest.body.operations + _FUNCTION * nest.body.functions
        for nest in nests
    )
    if cost is None or cost >= most * one:
        vector = None
    width = most
    while vector is not None and width > 2 and width >= 2 * axes[vector].size:
        width //= 2
    maskable = all(nest.body.maskable for nest in nests)
    jam, jam_by = _jam(nests, vector, carried, choices)
    unroll = _unroll(nests, vector, carried, width, choices, jam_by) if vector is not None else 1
    lead = max(nests, key=lambda nest: len(nest.reads))
    parallel = [k for k in range(len(axes)) if k not in carried and k not in (vector, jam)]
    parallel.sort(key=lambda k: -_weight(nests[0], k))
    carried.sort(key=lambda k: (k == vector, -_weight(lead, k)))
    return LoopPlan(
        vector=vector,
        width=width if vector is not None else 1,
        unroll=unroll,
        jam=jam,
        jam_by=jam_by,
        parallel=tuple(parallel),
        carried=tuple(carried),
        masked=maskable,
        cascade=_cascade(nests, carried, vector, width * unroll, choices),
    )


def _cost(nests: Sequence[Nest], axis: int, carried: Sequence[int], width: int) -> float | None:
    """Cost of a vector that lies along ``axis``, in operations; ``None`` where none can."""
    total = 0.0
    size = nests[0].axes[axis].size
    for nest in nests:
        reduced = nest.axes[axis].reduced
        if reduced and any(each is None for each in nest.body.combiners):
            return None
        for read in nest.reads:
            total += _access_cost(abs(read.strides[axis]), read.strides[axis] < 0, width)
        for write in nest.writes:
            stride = write.strides[axis]
            if stride == 0:
                total += 8 / size
            elif stride == 1:
                total += 1 if not nest.reduces else 0.1
            else:
                total += _SCATTERED * width / 16 / (1 if not nest.reduces else _carried_size(nest))
        total += nest.body.operations + _FUNCTION * nest.body.functions
    full = -(-size // width) * width
    return total * full / size


def _access_cost(stride: int, backwards: bool, width: int) -> float:
    if stride == 0:
        return 0.5
    if stride == 1 and not backwards:
        return 1
    return _STRIDED * stride if stride <= 4 and not backwards else _GATHERED * width / 16


def _carried_size(nest: Nest) -> int:
    size = 1
    for axis in nest.axes:
        size *= axis.size if axis.reduced else 1
    return size


def _weight(nest: Nest, axis: int) -> int:
    """How far an iteration of a loop moves in memory: the farthest goes outermost."""
    return max((abs(each.strides[axis]) for each in (*nest.writes, *nest.reads)), default=0)


def _jam(
    nests: Sequence[Nest], vector: int | None, carried: Sequence[int], choices: Choices
) -> tuple[int | None, int]:
    """Find the loop whose neighbouring iterations read the same vectors while their results stay in registers."""
    if vector is None or vector in carried or not carried or len(nests) > 1 or choices.jam < 2:
        return None, 1
    nest = nests[0]
    vectors = [read for read in nest.reads if read.strides[vector]]
    found = [
        k
        for k, axis in enumerate(nest.axes)
        if k not in carried and k != vector and axis.size > 1 and any(not read.strides[k] for read in vectors)
    ]
    if not found or len(nest.reads) < 2:
        return None, 1
    best = max(found, key=lambda k: nest.axes[k].size)
    return best, _fitting(nest.axes[best].size, choices.jam)


def _fitting(size: int, most: int) -> int:
    """Give the largest block up to ``most`` that divides ``size``, unless all that do are less than half of it."""
    divisors = [block for block in range(1, min(most, size) + 1) if size % block == 0]
    return divisors[-1] if 2 * divisors[-1] >= min(most, size) else min(most, size)


def _unroll(
    nests: Sequence[Nest], vector: int, carried: Sequence[int], width: int, choices: Choices, jam_by: int
) -> int:
    functions = sum(nest.body.functions for nest in nests)
    reading = max(len(nest.reads) for nest in nests)
    wanted = choices.partials if vector in carried else choices.unroll
    if functions:
        wanted = min(wanted, 2)
    if jam_by > 1:
        wanted = min(wanted, max(1, (choices.registers - 4) // (jam_by + 1)))
    elif sum(nest.body.operations for nest in nests) > 12 or reading > 4:
        wanted = min(wanted, 2)
    return max(1, min(wanted, nests[0].axes[vector].size // width))


def _cascade(
    nests: Sequence[Nest], carried: Sequence[int], vector: int | None, lanes: int, choices: Choices
) -> int:
    rounding = [
        nest
        for nest in nests
        if any(each is not None and each.rounds for each in nest.body.combiners) and nest.reduces
    ]
    known = all(each is not None for nest in nests for each in nest.body.combiners if nest.reduces)
    if not carried or not rounding or not known or choices.cascade <= 0:
        return 0
    if any(each is Combiner.PLACE for nest in nests for each in nest.body.combiners):
        return 0
    innermost = carried[-1]
    step = lanes if innermost == vector else 1
    return choices.cascade * step if nests[0].axes[innermost].size > 2 * choices.cascade * step else 0


# --- several nests --------------------------------------------------------------------------------


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
    for each in every:
        if each.reduces and not all(each.axes[k].reduced for k in carried):
            return None  # a result kept for some of the carried loops only
    for member in stage:
        for write in member.writes:
            whole = not member.reduces
            for read in (*nest.reads, *(r for r in nest.initial if r)):
                if read.buffer == write.buffer and (not whole or read.strides != write.strides):
                    return None
    return nest


def plan_threads(group_rows: Sequence[tuple[int, Axis]], work: int, threads: int, grain: int) -> int | None:
    """Choose the row loop that is divided among threads: its position in ``group_rows``, or ``None`` for one thread.

    Args:
        group_rows: Label and axis of each row loop, the outermost first.
        work: Elements touched by the whole group.
        threads: How many there are.
        grain: Elements below which starting the threads takes longer than they save.
    """
    if threads < 2 or work < grain or not group_rows:
        return None
    for position, (_, axis) in enumerate(group_rows):
        if axis.size >= threads and (axis.size % threads == 0 or axis.size >= 8 * threads):
            return position
    sizes = [axis.size for _, axis in group_rows]
    largest = max(sizes)
    return sizes.index(largest) if largest > 1 else None
