"""What the loops of a stage hold at any moment: its results, the tile at work, what is carried from turn to turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from torchsched.transforms.vectors.accesses import Access
from torchsched.transforms.vectors.functions import Functions
from torchsched.transforms.vectors.lanes import Copy, Varying
from torchsched.transforms.vectors.loads import Loads, plan_varying
from torchsched.transforms.vectors.nests import Combiner, Nest
from torchsched.transforms.vectors.numbers import Numbers
from torchsched.transforms.vectors.places import Place, Position
from torchsched.transforms.vectors.plans import LoopPlan
from torchsched.transforms.vectors.staging import Together
from torchsched.transforms.vectors.writing import Index, Writer

__all__ = ["Kit", "Live", "Moment", "Result", "Stage", "State", "Tile", "copies_of", "distinct"]

Value = Any


@dataclass(frozen=True, slots=True)
class Kit:
    """What everything that writes needs."""

    writer: Writer
    functions: Functions
    numbers: Numbers


Live = dict[int, tuple[Varying, dict[Copy, Any]]]
"""Results that are at hand, by buffer: how they differ among the copies, and each copy's value."""


class Moment(StrEnum):
    """When an element of a result is known."""

    ITERATION = "iteration"
    """Every iteration has one of its own."""
    CARRIED = "carried"
    """After the loops that it is carried through."""
    AFTER = "after"
    """After that, from what was carried."""


@dataclass(frozen=True, slots=True)
class Result:
    """One result of one nest of the stage."""

    nest: int
    number: int
    write: Access
    moment: Moment
    combiner: Combiner | None
    varying: Varying
    element: Any
    """The type it is computed in."""

    @property
    def buffer(self) -> int:
        """The buffer that it is written to."""
        return self.write.buffer


@dataclass(frozen=True, slots=True)
class Tile:
    """What is computed at once: copies, and the mask over them."""

    copies: tuple[Copy, ...]
    width: int
    mask: Value | None = None


@dataclass(slots=True)
class State:
    """What loops carry: tensors being written, and results being accumulated, by result and copy."""

    tensors: list[Value]
    sums: dict[tuple[int, Copy], Value] = field(default_factory=dict)

    def values(self) -> list[Value]:
        """Give all of it, in a fixed order."""
        return [*self.tensors, *self.sums.values()]

    def renewed(self, values: Sequence[Value]) -> State:
        """Give the same with other values, in the order of :meth:`values`."""
        cut = len(self.tensors)
        return State(list(values[:cut]), dict(zip(self.sums, values[cut:], strict=True)))


@dataclass(frozen=True, slots=True)
class Stage:
    """Nests that run in the same loops, and where what they touch is."""

    kit: Kit
    together: Together
    plan: LoopPlan
    extents: Sequence[Index]
    places: Mapping[int, Place]
    at: Position

    @property
    def nests(self) -> tuple[Nest, ...]:
        """All nests, in order."""
        return self.together.every

    @property
    def partial(self) -> bool:
        """Whether vectors lie along a loop that results are carried through: their lanes are partial results."""
        return self.plan.vector is not None and self.plan.vector in self.plan.carried

    def loads(self, tile: Tile) -> Loads:
        """Give what reads and writes for a tile."""
        return Loads(
            self.kit.writer,
            self.kit.numbers,
            self.plan,
            self.places,
            self.at,
            tile.width,
            tile.mask,
            self.extents,
        )

    def results(self) -> list[Result]:
        """List the results of all nests."""
        return [self._result(n, k) for n, nest in enumerate(self.nests) for k in range(len(nest.writes))]

    def _result(self, n: int, number: int) -> Result:
        nest, plan = self.nests[n], self.plan
        write = nest.writes[number]
        after = n >= len(self.together.nests)
        moment = Moment.AFTER if after else Moment.CARRIED if nest.reduces else Moment.ITERATION
        lanes = plan.vector is not None and bool(write.strides[plan.vector])
        partial = self.partial and not lanes and moment is Moment.CARRIED
        return Result(
            nest=n,
            number=number,
            write=write,
            moment=moment,
            combiner=nest.body.combiners[number],
            varying=replace(plan_varying(plan, write), lanes=lanes or partial),
            element=self.kit.numbers.computed(nest.operation.results[number].type.element_type),
        )


def copies_of(jam: int, rows: int, offsets: Sequence[int]) -> tuple[Copy, ...]:
    """Give the copies of neighbouring iterations, each over the vectors that begin at ``offsets``."""
    return tuple(Copy(j, offset, r) for j in range(jam) for r in range(rows) for offset in offsets)


def distinct(copies: Sequence[Copy], varying: Varying) -> list[Copy]:
    """Give the copies that a value differs among."""
    return sorted({varying.of(copy) for copy in copies})
