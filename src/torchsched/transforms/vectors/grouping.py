"""Decides which nests run together, row by row, so that what passes between them stays in cache or in registers.

Nests that hand a tensor on are cut until their loops match; the loops that no member reduces are the rows, which
run outermost and once for all members. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torchsched.transforms.vectors.accesses import Access, refinement
from torchsched.transforms.vectors.nests import Nest
from torchsched.transforms.vectors.plans import STEPS
from torchsched.transforms.vectors.staging import stages

__all__ = ["Group", "Limits", "grouped", "matched"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How far nests are put together."""

    members: int = 24
    """Nests in one group; finding out what matches takes the square of it."""
    row_bytes: int = 1 << 19
    """What one block of rows may keep between its nests: half of a core's own cache, for inputs to pass through."""
    block: int = 64
    """Rows taken together where they lie side by side in memory: four vectors of 16."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nests that run together."""

    positions: tuple[int, ...]
    """In the program, in order."""
    nests: tuple[Nest, ...]
    """Labelled: axes with the same label walk together."""
    rows: tuple[int, ...]
    """Labels of the loops that are common to all and reduced by none, the outermost first."""

    def size(self, label: int) -> int:
        """Iterations of the loop with ``label``."""
        return next(axis.size for nest in self.nests for axis in nest.axes if axis.label == label)


def grouped(
    nests: Mapping[int, Nest], needs: Sequence[frozenset[int]], sizes: Mapping[int, int], limits: Limits
) -> list[Group]:
    """Put the nests of a program into groups.

    Args:
        nests: By position in the program.
        needs: For each operation of the program, the positions of those whose results it uses.
        sizes: Elements of each buffer.
        limits: How far to go.
    """
    groups: dict[int, Group] = {}  # by the position of the last member
    owner: dict[int, int] = {}  # position of a nest -> position of its group's last member
    for position in sorted(nests):
        mine = matched((position,), [nests[position]], sizes)
        assert mine is not None  # a nest matches itself
        sources = sorted({owner[each] for each in needs[position] if each in owner}, reverse=True)
        for source in sources:
            joined = tuple(sorted({*groups[source].positions, *mine.positions}))
            if len(joined) > limits.members or not _convex(joined, needs):
                continue
            found = matched(joined, [nests[each] for each in joined], sizes)
            if found is not None and _worthwhile(found, sizes, limits):
                mine = found
                del groups[source]
        groups[position] = mine
        owner.update(dict.fromkeys(mine.positions, position))
    return list(groups.values())


def matched(positions: Sequence[int], nests: Sequence[Nest], sizes: Mapping[int, int]) -> Group | None:
    """Cut the loops of nests until those that hand tensors on match; ``None`` where they do not."""
    written = {write.buffer for nest in nests for write in nest.writes}
    if any(written.intersection(nest.gathers) for nest in nests):
        return None
    refined = _refined(list(nests), sizes)
    if refined is None:
        return None
    labels = _labels(refined, sizes)
    if labels is None:
        return None
    labelled = tuple(nest.labelled(each) for nest, each in zip(refined, labels, strict=True))
    rows = _rows(labelled)
    if len(labelled) > 1 and not rows:
        return None
    return Group(tuple(positions), labelled, rows)


# --- matching loops -------------------------------------------------------------------------------


def _links(nests: Sequence[Nest]) -> Iterable[tuple[int, Access, int, Access]]:
    """Give each pair of a write and a read of one buffer, with the nests they belong to."""
    writers = {write.buffer: (n, write) for n, nest in enumerate(nests) for write in nest.writes}
    for n, nest in enumerate(nests):
        for read in nest.taken:
            if read.buffer in writers:
                yield (*writers[read.buffer], n, read)


def _refined(nests: list[Nest], sizes: Mapping[int, int]) -> list[Nest] | None:
    for _ in range(64):  # each round cuts a loop; sizes below 2^64 have no more cuts
        cut = False
        for n, write, m, read in list(_links(nests)):
            for side, access in ((n, write), (m, read)):
                if not access.dense(nests[side].axes, sizes[access.buffer]):
                    return None
            cuts = refinement(_walk(nests[n], write), _walk(nests[m], read))
            if cuts is None:
                return None
            for side, access in ((n, write), (m, read)):
                finer = _cut(nests[side], access, cuts)
                if finer is not None:
                    nests[side], cut = finer, True
            if cut:
                break  # accesses have changed: look at them anew
        if not cut:
            return nests
    return None


def _walk(nest: Nest, access: Access) -> list[tuple[int, int]]:
    return [(s, axis.size) for s, axis in zip(access.strides, nest.axes, strict=True) if s]


def _cut(nest: Nest, access: Access, cuts: Sequence[int]) -> Nest | None:
    for k, (stride, axis) in enumerate(zip(access.strides, nest.axes, strict=True)):
        inside = [cut for cut in cuts if stride and stride < cut < stride * axis.size]
        if inside:
            return nest.split(k, inside[-1] // stride)
    return None


def _labels(nests: Sequence[Nest], sizes: Mapping[int, int]) -> list[list[int]] | None:
    """Name the loops: those that walk one buffer with one stride get one name."""
    names = [[(n, k) for k in range(len(nest.axes))] for n, nest in enumerate(nests)]
    parent = {each: each for row in names for each in row}

    def find(each: tuple[int, int]) -> tuple[int, int]:
        while parent[each] != each:
            each = parent[each]
        return each

    for n, write, m, read in _links(nests):
        for k, stride in enumerate(write.strides):
            if stride:
                parent[find((m, read.strides.index(stride)))] = find((n, k))
    if _clash(names, find):
        return None
    _tie_by_inputs(nests, sizes, parent, find, names)
    numbers: dict[tuple[int, int], int] = {}
    return [[numbers.setdefault(find(each), len(numbers)) for each in row] for row in names]


def _clash(names, find) -> bool:  # type: ignore[no-untyped-def]
    return any(len({find(each) for each in row}) < len(row) for row in names)


def _tie_by_inputs(nests, sizes, parent, find, names) -> None:  # type: ignore[no-untyped-def]
    """Tie loops that walk the same input alike, where nothing speaks against it: they can run as one."""
    first: dict[int, tuple[int, Access]] = {}
    for n, nest in enumerate(nests):
        for read in nest.reads:
            if not read.dense(nest.axes, sizes[read.buffer]):
                continue
            other = first.setdefault(read.buffer, (n, read))
            pairs = _alike(nests[other[0]], other, nest, (n, read))
            if other[0] == n or pairs is None:
                continue
            before = dict(parent)
            for a, b in pairs:
                parent[find(b)] = find(a)
            if _clash(names, find):
                parent.clear()
                parent.update(before)


def _alike(nest, one, other, two):  # type: ignore[no-untyped-def]
    walk = sorted(_walk(nest, one[1]))
    if walk != sorted(_walk(other, two[1])):
        return None
    return [((one[0], one[1].strides.index(s)), (two[0], two[1].strides.index(s))) for s, _ in walk]


def _rows(nests: Sequence[Nest]) -> tuple[int, ...]:
    shared = set.intersection(*({axis.label for axis in nest.axes if not axis.reduced} for nest in nests))
    reduced = {axis.label for nest in nests for axis in nest.axes if axis.reduced}
    lead = max(nests, key=lambda nest: nest.iterations)
    order = {axis.label: _reach(lead, k) for k, axis in enumerate(lead.axes)}
    return tuple(sorted(shared - reduced, key=lambda label: -order[label]))


def _reach(nest: Nest, axis: int) -> int:
    return max((abs(each.strides[axis]) for each in (*nest.reads, *nest.writes)), default=0)


# --- whether it pays ------------------------------------------------------------------------------


def _convex(members: Sequence[int], needs: Sequence[frozenset[int]]) -> bool:
    """Whether nothing outside lies on a way from one member to another."""
    inside = set(members)
    tainted: set[int] = set()
    for position in range(members[0], members[-1] + 1):
        if position in inside:
            if needs[position] & tainted:
                return False
        elif needs[position] & (tainted | inside):
            tainted.add(position)
    return True


def _worthwhile(group: Group, sizes: Mapping[int, int], limits: Limits) -> bool:
    """Whether what stays between the nests of one row, or of one block of rows, fits into a core's cache."""
    if len(stages(group.nests, ())) == 1:
        return True  # the same loops: nothing stays anywhere but in registers
    rows = math.prod(group.size(label) for label in group.rows)
    if rows == 1 or any(is_product(nest) for nest in group.nests):
        return False
    lead = max(group.nests, key=lambda nest: nest.iterations)
    block = blocked_row(group)
    if block is None and all(axis.label in group.rows for axis in lead.axes):
        return False  # single elements: nothing that a vector could lie along
    kept = max((sizes[each] // rows for each in passed_on(group)), default=0)
    return block is None or kept * min(limits.block, group.size(block)) * 4 <= limits.row_bytes


def is_product(nest: Nest) -> bool:
    """Whether a reduction reads something that other iterations read too: it must keep many results in registers."""
    free = [k for k, axis in enumerate(nest.axes) if not axis.reduced]
    moving = [read for read in nest.reads if any(read.strides)]
    return nest.reduces and len(moving) > 1 and any(not read.strides[k] for read in moving for k in free)


def passed_on(group: Group) -> set[int]:
    """Give the buffers that nests of the group hand to each other."""
    written = {write.buffer for nest in group.nests for write in nest.writes}
    return written & {access.buffer for nest in group.nests for access in nest.taken}


def blocked_row(group: Group) -> int | None:
    """Give the label of the row loop that walks element by element through what the group reads and writes.

    Such rows are taken in blocks, so that vectors lie along them. What stays inside the group has no say: it can be
    laid out either way.
    """
    inside = passed_on(group)
    steps: dict[int, int] = {label: 0 for label in group.rows if group.size(label) > 1}
    for nest in group.nests:
        for access in (*nest.reads, *nest.writes):
            if access.buffer in inside or not _leading(access, nest):
                continue
            for axis, stride in zip(nest.axes, access.strides, strict=True):
                if axis.label in steps:
                    near = 0 < stride <= STEPS
                    steps[axis.label] += stride if near else _FAR
    best = min(steps, key=lambda label: steps[label], default=None)
    return best if best is not None and 0 < steps[best] < _FAR else None


_FAR = 1 << 20
"""More than the steps of all accesses of a group together."""


def _leading(access: Access, nest: Nest) -> bool:
    """Whether an access visits as much as the nest runs: not a scale or a bias."""
    visited = 1
    for axis, stride in zip(nest.axes, access.strides, strict=True):
        visited *= axis.size if stride else 1
    return visited == nest.iterations
