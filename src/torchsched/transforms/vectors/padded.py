"""Reads through padding: elements inside are read under a mask, and the value of the padding stands for the others.

What is known of the loops' ranges is used: where no lane can lie in the padding there is no mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchsched.transforms.vectors.accesses import Access, Axis, Bound
from torchsched.transforms.vectors.lanes import converted
from torchsched.transforms.vectors.numbers import is_float
from torchsched.transforms.vectors.places import Given, Place, Position
from torchsched.transforms.vectors.plans import STEPS, LoopPlan
from torchsched.transforms.vectors.writing import Index, Writer

if TYPE_CHECKING:
    from torchsched.transforms.vectors.loads import Loads

__all__ = ["PaddedReads"]

Value = Any


class PaddedReads:
    """Reads for one tile."""

    def __init__(
        self,
        loads: Loads,
        writer: Writer,
        plan: LoopPlan,
        places: Mapping[int, Place],
        at: Position,
        extents: Sequence[Index],
    ) -> None:
        self._loads = loads
        self._writer = writer
        self._vector = plan.vector
        self._places = places
        self._at = at
        self._extents = extents

    def read(self, access: Access, axes: tuple[Axis, ...], ivs: dict[int, Index]) -> Value:
        """Read where the bounds hold, and give the padding elsewhere."""
        writer, v = self._writer, self._vector
        place = self._places[access.buffer]
        assert isinstance(place, Given)  # nothing that a group writes is read through a padding in it
        width, mask = self._loads.width, self._loads.mask
        if v is None or not access.strides[v] or width == 1:
            return self._guarded(place, access, axes, ivs)
        step = access.strides[v]
        steps = {bound.strides[v] for bound in access.bounds if bound.strides[v]}
        side_by_side = steps <= {step} and 1 <= step <= STEPS and str(place.tensor.type.element_type) != "i1"
        if not side_by_side or (step > 1 and mask is not None):
            found = []
            for lane in range(width):
                iteration = writer.add(ivs.get(v, 0), lane)
                if mask is not None:
                    iteration = writer.least(iteration, writer.sub(self._extents[v], 1))
                found.append(self._guarded(place, access, axes, {**ivs, v: iteration}))
            return writer.vector.from_elements(writer.vector_type(width, found[0].type), found)
        start = place.indices(writer, access, axes, ivs, self._at)[0]

        def part(first: int) -> Value:
            inside = self._within(access, axes, ivs, first)
            return writer.read(
                place.tensor, [writer.add(start, first)], width, inside, self._padding(access, place)
            )

        return part(0) if step == 1 else self._loads.stepped(step, part)

    def _padding(self, access: Access, place: Given) -> Value:
        element = place.tensor.type.element_type
        return converted(self._writer, access.padding, element) if is_float(element) else access.padding

    def _coordinate(self, bound: Bound, axes: tuple[Axis, ...], ivs: Mapping[int, Index]) -> Index:
        access = Access(-1, bound.strides, bound.offset)
        return Given(None).indices(self._writer, access, axes, ivs, self._at)[0]

    def _guarded(
        self, place: Given, access: Access, axes: tuple[Axis, ...], ivs: Mapping[int, Index]
    ) -> Value:
        """Read one element, or the first one of the tensor in its stead where a bound does not hold."""
        writer = self._writer
        valid = self._hold(access.bounds, axes, ivs)
        at = writer.index(place.indices(writer, access, axes, ivs, self._at)[0])
        if valid is None:
            return writer.read(place.tensor, [at], 1)
        at = writer.op("arith.select", [writer.index_type], [valid, at, writer.index(0)])
        value = writer.read(place.tensor, [at], 1)
        return writer.op("arith.select", [value.type], [valid, value, self._padding(access, place)])

    def _hold(
        self, bounds: Sequence[Bound], axes: tuple[Axis, ...], ivs: Mapping[int, Index]
    ) -> Value | None:
        """Give whether all bounds hold; ``None`` where they are known to."""
        writer = self._writer
        found = None
        for bound in bounds:
            at = self._coordinate(bound, axes, ivs)
            span = writer.span(at)
            if span is not None and span[0] >= 0 and span[1] < bound.size:
                continue
            # compared as unsigned, what is below zero is beyond any size
            below = writer.arith.CmpIPredicate.ult
            here = writer.arith.cmpi(below, writer.index(at), writer.index(bound.size))
            found = here if found is None else writer.arith.andi(found, here)
        return found

    def _within(
        self, access: Access, axes: tuple[Axis, ...], ivs: Mapping[int, Index], first: int
    ) -> Value | None:
        """Give the mask of the lanes, ``first`` elements after the access's own, for which the bounds hold."""
        writer, v, width = self._writer, self._vector, self._loads.width
        assert v is not None  # there are lanes
        same = [bound for bound in access.bounds if not bound.strides[v]]
        allowed = self._hold(same, axes, ivs)
        masks = [] if self._loads.mask is None else [self._loads.mask]
        if allowed is not None:
            masks.append(writer.splat(allowed, width))
        for bound in access.bounds:
            if bound not in same:
                masks += self._lanes(writer.add(self._coordinate(bound, axes, ivs), first), bound.size)
        found = None
        for mask in masks:
            found = mask if found is None else writer.arith.andi(found, mask)
        return found

    def _lanes(self, at: Index, size: int) -> list[Value]:
        """Give the masks of the lanes that lie between 0 and ``size``, the first of them at ``at``."""
        writer, width = self._writer, self._loads.width
        span = writer.span(at)
        least, most = span if span is not None else (-size, size)
        if isinstance(at, int):
            inside = [0 <= at + lane < size for lane in range(width)]
            return [] if all(inside) else [writer.lanes(inside)]
        boolean = writer.vector_type(width, writer.ir.IntegerType.get_signless(1))
        masks = []
        if most + width > size:
            masks.append(writer.vector.create_mask(boolean, [writer.index(writer.sub(size, at))]))
        if least < 0:
            before = writer.vector.create_mask(boolean, [writer.index(writer.sub(0, at))])
            masks.append(writer.arith.xori(before, writer.lanes([True] * width)))
        return masks
