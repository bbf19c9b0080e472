"""Chooses how a nest is run: along which loop its vectors lie, how many at once, what is kept in registers.

Pure functions of sizes and strides; the costs are relative and only order the choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchsched.transforms.vectors.nests import Combiner, Nest
from torchsched.transforms.vectors.staging import Together

__all__ = ["STEPS", "Choices", "LoopPlan", "plan_loops"]


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
    once: bool = False
    """Whether no element may be computed twice, since what it is made of may be overwritten by it."""


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """How the nests of one stage run; loops are given as positions among the stage's axes."""

    vector: int | None
    """The loop that vectors lie along; ``None``: one element after the other."""
    width: int
    """Elements of a vector."""
    unroll: int
    parallel: tuple[int, ...]
    """Loops around everything, the outermost first; without those below."""
    carried: tuple[int, ...]
    """Loops that results are carried through, the outermost first; with the vector's where it is one of them."""
    masked: bool
    """Whether what is left over after whole vectors is done under a mask, rather than one by one."""
    jam: int | None = None
    """The loop whose neighbouring iterations read the same vectors."""
    jam_by: int = 1
    row: int | None = None
    """The loop whose neighbouring iterations read the same scalars, or lie side by side in what is transposed."""
    row_by: int = 1
    square: bool = False
    """Whether what lies across the vectors is read along ``row`` and transposed in registers."""
    cascade: int = 0
    """Iterations of the innermost carried loop after which partial results are put aside; 0 for never."""
    once: bool = False
    """Whether no element may be computed twice."""


def plan_loops(stage: Together, choices: Choices) -> LoopPlan:
    """Choose how the nests of a stage run as one; a loop may be reduced in one and not in another."""
    nests = stage.nests
    axes = nests[0].axes
    carried = [k for k in range(len(axes)) if any(nest.axes[k].reduced for nest in nests)]
    lead = max(nests, key=lambda nest: len(nest.reads))
    carried.sort(key=lambda k: -_weight(lead, k))
    vector, width = _vector(stage, choices)
    if vector is None:
        parallel = sorted((k for k in range(len(axes)) if k not in carried), key=lambda k: -_weight(lead, k))
        return LoopPlan(None, 1, 1, tuple(parallel), tuple(carried), False)
    carried.sort(key=lambda k: k == vector)
    across = _across(nests, vector, width)
    if across is not None:
        parallel = sorted(
            (k for k in range(len(axes)) if k not in (vector, across)), key=lambda k: -_weight(nests[0], k)
        )
        masked = all(nest.body.maskable for nest in stage.every)
        return LoopPlan(vector, width, 1, tuple(parallel), (), masked, row=across, row_by=width, square=True)
    blocks = _register_blocks(nests, vector, width, carried, choices)
    unroll = blocks.vectors if blocks else _unroll(nests, vector, width, carried, choices)
    taken = (vector, blocks.jam, blocks.row) if blocks else (vector,)
    parallel = [k for k in range(len(axes)) if k not in carried and k not in taken]
    return LoopPlan(
        vector=vector,
        width=width,
        unroll=unroll,
        parallel=tuple(sorted(parallel, key=lambda k: -_weight(nests[0], k))),
        carried=tuple(carried),
        masked=all(nest.body.maskable for nest in stage.every),
        jam=blocks.jam if blocks else None,
        jam_by=blocks.jam_by if blocks else 1,
        row=blocks.row if blocks else None,
        row_by=blocks.row_by if blocks else 1,
        cascade=_cascade(nests, carried, vector, width * unroll, choices),
        once=choices.once,
    )


def _weight(nest: Nest, axis: int) -> int:
    """How far an iteration of a loop moves in memory: the farthest goes outermost."""
    return max((abs(each.strides[axis]) for each in (*nest.writes, *nest.reads)), default=0)


# --- along which loop vectors lie -----------------------------------------------------------------

STEPS = 4
"""Steps up to which whole vectors are read and sorted out: beyond, most of what is read would be dropped."""
_STEPPED, _SCATTERED, _GATHERED, _FUNCTION, _TRANSPOSED = 4, 48, 24, 20, 6
"""Costs of a vector of 16, in operations: read in small steps, written or read one by one, a function of it, read
as one of a square that is transposed."""


def _vector(stage: Together, choices: Choices) -> tuple[int | None, int]:
    """Choose the loop that vectors lie along, and their length; ``None`` where single elements are no slower."""
    nests = stage.nests
    bits = max(nest.body.element_bits for nest in nests)
    most = max(1, choices.vector_bits // bits)
    single = sum(
        len(nest.reads) + len(nest.writes) + nest.body.operations + _FUNCTION * nest.body.functions
        for nest in nests
    )
    best: tuple[float, int, int] | None = None
    for k, axis in enumerate(nests[0].axes):
        if axis.size < 2 or most < 2:
            continue
        width = _width(stage, k, most)
        cost = _cost(nests, k, width, _across(nests, k, width))
        if width < 2 or cost is None:
            continue
        each = cost * -(-axis.size // width) / axis.size
        if each < single and (best is None or each < best[0]):
            best = (each, k, width)
    return (best[1], best[2]) if best else (None, 1)


def _width(stage: Together, axis: int, most: int) -> int:
    """Choose the elements of a vector along ``axis``: as few vectors as can be, and no longer than they must."""
    nests, size = stage.every, stage.nests[0].axes[axis].size
    side_by_side = all(
        access.strides[axis] in (0, 1) for nest in nests for access in (*nest.taken, *nest.writes)
    )
    partial = side_by_side and all(nest.body.maskable for nest in nests)
    width, count = most, -(-size // most)
    while width > 2 and (-(-size // (width // 2)) == count or (width > size and not partial)):
        width //= 2
        count = -(-size // width)
    reduced = any(nest.axes[axis].reduced for nest in nests)
    if reduced and not all(nest.body.maskable for nest in nests):
        while width > 1 and size % width:  # what is left over could be neither masked nor done again
            width //= 2
    return width


def _across(nests: Sequence[Nest], axis: int, width: int) -> int | None:
    """Find the loop along which elements lie side by side that vectors along ``axis`` would have to gather.

    A square of ``width`` vectors is then read along it and transposed; every result must be elementwise.
    """
    if width < 4 or any(nest.reduces or not nest.body.maskable for nest in nests):
        return None
    axes = nests[0].axes
    found = {
        k
        for nest in nests
        for read in nest.reads
        if read.strides[axis] > STEPS and not read.bounds
        for k, stride in enumerate(read.strides)
        if stride == 1 and k != axis and axes[k].size >= width and axes[axis].size >= width
    }
    return found.pop() if len(found) == 1 else None


def _cost(nests: Sequence[Nest], axis: int, width: int, across: int | None = None) -> float | None:
    """Cost of a vector that lies along ``axis``, in operations; ``None`` where none can."""
    total = 0.0
    size = nests[0].axes[axis].size
    for nest in nests:
        if nest.axes[axis].reduced and any(each is None for each in nest.body.combiners):
            return None
        for read in (*nest.reads, *nest.picks):
            square = across is not None and read.strides[axis] > STEPS and read.strides[across] == 1
            total += _TRANSPOSED if square else _access_cost(read.strides[axis], width)
        for write in nest.writes:
            stride = write.strides[axis]
            often = _carried_size(nest)  # a carried result is written once in so many iterations
            if stride == 0:
                total += 8 * width / size
            else:
                total += (1 if stride == 1 else _SCATTERED * width / 16) / often
        total += nest.body.operations + _FUNCTION * nest.body.functions
    return total


def _access_cost(stride: int, width: int) -> float:
    if stride == 0:
        return 0.5
    if stride == 1:
        return 1
    if stride == -1:
        return 2
    return _STEPPED * stride if 0 < stride <= STEPS else _GATHERED * width / 16


def _carried_size(nest: Nest) -> int:
    size = 1
    for axis in nest.axes:
        size *= axis.size if axis.reduced else 1
    return size


# --- how many at once -----------------------------------------------------------------------------


def _unroll(nests: Sequence[Nest], vector: int, width: int, carried: Sequence[int], choices: Choices) -> int:
    wanted = choices.partials if vector in carried else choices.unroll
    heavy = sum(nest.body.operations for nest in nests) > 12 or max(len(nest.reads) for nest in nests) > 4
    if heavy or any(nest.body.functions for nest in nests):
        wanted = min(wanted, 2)
    count = (
        nests[0].axes[vector].size // width if vector in carried else -(-nests[0].axes[vector].size // width)
    )
    return _evenly(count, wanted)


def _evenly(count: int, most: int) -> int:
    """Give how many of ``count`` to take at once so that the last turn is as full as the others."""
    turns = -(-count // most)
    return max(1, -(-count // turns)) if turns else 1


@dataclass(frozen=True, slots=True)
class _Blocks:
    """How many results of a product-like nest are kept in registers."""

    vectors: int
    jam: int | None
    jam_by: int
    row: int | None
    row_by: int


def _register_blocks(
    nests: Sequence[Nest], vector: int, width: int, carried: Sequence[int], choices: Choices
) -> _Blocks | None:
    """Find the loops along which a reduction shares what it reads, and how far to go along each.

    One of two factors is read as vectors and the other as scalars. A loop that only the scalars depend on shares
    the vectors, and is jammed; one that only the vectors depend on shares the scalars, and gives more vectors.
    """
    if len(nests) > 1 or vector in carried or not carried:
        return None
    nest = nests[0]
    vectors = [read for read in nest.reads if read.strides[vector]]
    scalars = [read for read in nest.reads if not read.strides[vector]]
    if not vectors or not scalars:
        return None
    free = [k for k in range(len(nest.axes)) if k not in carried and k != vector and nest.axes[k].size > 1]
    jams = [k for k in free if not any(r.strides[k] for r in vectors) and any(r.strides[k] for r in scalars)]
    rows = [k for k in free if any(r.strides[k] for r in vectors) and not any(r.strides[k] for r in scalars)]
    together = 4 if choices.registers >= 32 else 2
    count = -(-nest.axes[vector].size // width)
    along = _evenly(count, min(together, max(1, choices.unroll)))
    jam = max(jams, key=lambda k: nest.axes[k].size, default=None) if choices.jam > 1 else None
    row = min(rows, key=lambda k: abs(vectors[0].strides[k]), default=None)
    row_by = min(nest.axes[row].size, together // along) if row is not None else 1
    held = along * row_by
    most = min(choices.jam, (choices.registers - 2 - held) // held)
    jam_by = _fitting(nest.axes[jam].size, most) if jam is not None else 1
    return _Blocks(along, jam, jam_by, row, row_by)


def _fitting(size: int, most: int) -> int:
    """Give the largest block up to ``most`` that divides ``size``, unless all that do are less than half of it."""
    divisors = [block for block in range(1, min(most, size) + 1) if size % block == 0]
    return divisors[-1] if 2 * divisors[-1] > min(most, size) else min(most, size)


def _cascade(nests: Sequence[Nest], carried: Sequence[int], vector: int, lanes: int, choices: Choices) -> int:
    rounding = [nest for nest in nests if nest.reduces and any(c and c.rounds for c in nest.body.combiners)]
    combiners = [each for nest in nests if nest.reduces for each in nest.body.combiners]
    if not rounding or None in combiners or Combiner.PLACE in combiners or choices.cascade <= 0:
        return 0
    innermost = carried[-1]
    step = lanes if innermost == vector else 1
    return choices.cascade * step if nests[0].axes[innermost].size > 2 * choices.cascade * step else 0
