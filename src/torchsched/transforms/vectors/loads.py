"""Reads and writes for one tile: side by side, in small steps, at computed places, or one element for all lanes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchsched.transforms.vectors.accesses import Access, Axis, contiguous_strides
from torchsched.transforms.vectors.lanes import Copy, Varying, converted
from torchsched.transforms.vectors.numbers import Numbers, is_float
from torchsched.transforms.vectors.padded import PaddedReads
from torchsched.transforms.vectors.places import Given, Held, Passed, Place, Position
from torchsched.transforms.vectors.plans import STEPS, LoopPlan
from torchsched.transforms.vectors.writing import Index, Writer

__all__ = ["Loads", "plan_varying"]

Value = Any


class Loads:
    """Reads each element of an iteration at most once."""

    def __init__(
        self,
        writer: Writer,
        numbers: Numbers,
        plan: LoopPlan,
        places: Mapping[int, Place],
        at: Position,
        width: int,
        mask: Value | None,
        extents: Sequence[Index],
    ) -> None:
        self._writer = writer
        self._numbers = numbers
        self._plan = plan
        self._places = places
        self._at = at
        self.width = width
        self.mask = mask
        self._extents = extents
        self._padded = PaddedReads(self, writer, plan, places, at, extents)
        self._seen: dict[tuple[Access, Copy], Value] = {}
        self._counting: dict[Value, Value] = {}
        """The first lane of each vector whose lanes count up by one."""
        self.live: dict[int, tuple[Varying, dict[Copy, Value]]] = {}
        """What nests before this one computed in this iteration."""

    def varying(self, access: Access) -> Varying:
        """Say whether what is read differs among the copies."""
        if access.buffer in self.live:
            return self.live[access.buffer][0]
        return plan_varying(self._plan, access)

    def read(
        self, access: Access, axes: tuple[Axis, ...], ivs: Mapping[int, Index], copy: Copy, element: Any
    ) -> Value:
        """Read for one copy, in the type that is computed in."""
        if access.buffer in self.live:
            varying, values = self.live[access.buffer]
            return values[varying.of(copy)]
        key = (access, self.varying(access).of(copy))
        if key not in self._seen and self._in_square(access):
            for row, value in enumerate(self._square(access, axes, ivs, copy)):
                value = converted(self._writer, value, element) if is_float(element) else value
                self._seen[access, replace(key[1], row=row)] = value
        if key not in self._seen:
            place = self._places[access.buffer]
            if isinstance(place, Held):
                assert place.value is not None  # stages run in order
                value = place.value
            else:
                value = self._elements(access, axes, ivs, key[1])
            self._seen[key] = converted(self._writer, value, element) if is_float(element) else value
        return self._seen[key]

    def write(
        self,
        value: Value,
        tensor: Value,
        access: Access,
        axes: tuple[Axis, ...],
        ivs: Mapping[int, Index],
        copy: Copy,
    ) -> Value:
        """Write for one copy; give the tensor that has it."""
        writer = self._writer
        place = self._places[access.buffer]
        element = tensor.type.element_type
        if is_float(element):
            value = converted(writer, value, element)
        here = self._moved(ivs, copy, access)
        lanes = self._plan.vector is not None and bool(access.strides[self._plan.vector]) and self.width > 1
        at = place.indices(writer, access, axes, here, self._at)  # type: ignore[union-attr]
        if not lanes:
            return writer.write(value, tensor, at)
        value = writer.splat(value, self.width)
        if self._step(place, access) == 1 and str(element) != "i1":
            return writer.write(value, tensor, at, self.mask)
        # lanes that the mask leaves out stand at the last element too: the one that belongs there comes last
        for lane in reversed(range(self.width)):
            one = writer.vector.extract(value, [], [lane])
            tensor = writer.write(one, tensor, self._lane(place, access, axes, here, lane))
        return tensor

    def counter(self, access: Access, axes: tuple[Axis, ...], ivs: Mapping[int, Index], copy: Copy) -> Value:
        """Give a loop counter of the original operation."""
        writer = self._writer
        first = Given(None).indices(writer, access, axes, self._moved(ivs, copy, access), self._at)[0]
        value = writer.index(first)
        step = access.strides[self._plan.vector] if self._plan.vector is not None else 0
        if not step or self.width == 1:
            return value
        lanes = writer.op(
            "arith.muli",
            [writer.vector_type(self.width, writer.index_type)],
            [writer.steps(self.width), writer.splat(writer.index(step), self.width)],
        )
        counted = writer.op("arith.addi", [lanes.type], [writer.splat(value, self.width), lanes])
        if step == 1:
            self._counting[counted] = value
        return counted

    def gather(self, tensor: Value, indices: list[Value], lanes: bool) -> Value:
        """Read a tensor at computed indices."""
        writer = self._writer
        element = tensor.type.element_type
        wanted = self._numbers.computed(element)
        if not lanes or self.width == 1:
            value = writer.tensor.extract(tensor, indices)
            return converted(writer, value, wanted) if is_float(element) else value
        *outer, last = indices
        if last in self._counting and str(element) != "i1" and not any(map(writer.is_vector, outer)):
            # Side by side, as where whole rows are picked: 16 reads of one element took twice the time of a vector's.
            value = writer.read(tensor, [*outer, self._counting[last]], self.width, self.mask)
            return converted(writer, value, wanted) if is_float(element) else value
        place = None
        for stride, index in zip(contiguous_strides(list(tensor.type.shape)), indices, strict=True):
            index = writer.splat(index, self.width)
            factor = writer.splat(writer.index(stride), self.width)
            term = writer.op("arith.muli", [index.type], [index, factor])
            place = term if place is None else writer.op("arith.addi", [term.type], [place, term])
        value = self._picked(writer.flat(tensor), place, element)
        return converted(writer, value, wanted) if is_float(element) else value

    # --- the ways to read ---

    def _in_square(self, access: Access) -> bool:
        """Whether vectors across an access are made by reading along it and transposing."""
        plan = self._plan
        if (
            not plan.square
            or plan.row is None
            or plan.vector is None
            or self.width == 1
            or self.mask is not None
        ):
            return False
        place = self._places[access.buffer]
        if isinstance(place, Held):
            return False
        across = self._step(place, access)
        along = access.strides[plan.row] if isinstance(place, Given) else 0
        return along == 1 and across > STEPS and str(place.tensor.type.element_type) != "i1"

    def _square(
        self, access: Access, axes: tuple[Axis, ...], ivs: Mapping[int, Index], copy: Copy
    ) -> list[Value]:
        """Read a square of vectors and transpose it; one vector for each row of the tile."""
        writer, v = self._writer, self._plan.vector
        place = self._places[access.buffer]
        assert isinstance(place, Given) and v is not None  # noqa: PT018 - by _in_square
        here = self._moved(ivs, replace(copy, row=0), access)
        lines = []
        for lane in range(self.width):
            at = place.indices(writer, access, axes, {**here, v: writer.add(here.get(v, 0), lane)}, self._at)
            lines.append(writer.read(place.tensor, at, self.width))
        return writer.transpose(lines)

    def _elements(
        self, access: Access, axes: tuple[Axis, ...], ivs: Mapping[int, Index], copy: Copy
    ) -> Value:
        writer = self._writer
        place = self._places[access.buffer]
        tensor = place.tensor  # type: ignore[union-attr]
        here = self._moved(ivs, copy, access)
        if access.bounds:
            return self._padded.read(access, axes, here)
        at = place.indices(writer, access, axes, here, self._at)  # type: ignore[union-attr]
        v = self._plan.vector
        if v is None or not access.strides[v] or self.width == 1:
            return writer.read(tensor, at, 1)
        step = self._step(place, access)
        element = tensor.type.element_type
        if step == 1 and str(element) != "i1":
            return writer.read(tensor, at, self.width, self.mask)
        if step == -1 and self.mask is None and len(at) == 1 and str(element) != "i1":
            forwards = writer.read(tensor, [writer.sub(at[0], self.width - 1)], self.width)
            return writer.vector.shuffle(forwards, forwards, list(reversed(range(self.width))))
        if 1 < step <= STEPS and self.mask is None and len(at) == 1 and str(element) != "i1":
            return self.stepped(
                step, lambda first: writer.read(tensor, [writer.add(at[0], first)], self.width)
            )
        found = [
            writer.read(tensor, self._lane(place, access, axes, here, lane), 1) for lane in range(self.width)
        ]
        return writer.vector.from_elements(writer.vector_type(self.width, element), found)

    def stepped(self, step: int, part_at: Callable[[int], Value]) -> Value:
        """Read every ``step``-th element: whole vectors, of which the last ends at the last element, and shuffles.

        Args:
            step: The step.
            part_at: Reads the vector that begins so many elements after the first.
        """
        writer, width = self._writer, self.width
        last = step * (width - 1) + 1 - width
        starts = [k * width for k in range(step) if k * width < last] + [last]
        parts = [part_at(first) for first in starts]
        value = parts[0]
        # where each lane's element stands in ``value``; None as long as it has not been read
        found = [step * lane if step * lane < width else None for lane in range(width)]
        for first, part in zip(starts[1:], parts[1:], strict=True):
            picks = []
            for lane in range(width):
                there = step * lane - first
                here = found[lane]
                picks.append(here if here is not None else width + there if 0 <= there < width else 0)
                if here is not None or 0 <= there < width:
                    found[lane] = lane
            value = writer.vector.shuffle(value, part, picks)
        return value

    # --- computed places ---

    def _picked(self, flat: Value, places: Value, element: Any) -> Value:
        writer = self._writer
        if str(element) in ("f32", "f64", "i32", "i64") and not _is_part(flat):
            boolean = writer.ir.IntegerType.get_signless(1)
            mask = writer.vector.constant_mask(writer.vector_type(self.width, boolean), [self.width])
            result = writer.vector_type(self.width, element)
            through = writer.splat(writer.zero(element), self.width)
            return writer.vector.gather(result, flat, [writer.index(0)], places, mask, through)
        found = []
        for lane in range(self.width):
            found.append(writer.read(flat, [writer.vector.extract(places, [], [lane])], 1))
        return writer.vector.from_elements(writer.vector_type(self.width, element), found)

    def _step(self, place: Place, access: Access) -> int:
        stride = access.strides[self._plan.vector]  # type: ignore[index]
        if isinstance(place, Passed):
            return place.stride(stride)
        return stride

    def _lane(
        self, place: Place, access: Access, axes: tuple[Axis, ...], ivs: dict[int, Index], lane: int
    ) -> list[Index]:
        v = self._plan.vector
        assert v is not None
        iteration = self._writer.add(ivs.get(v, 0), lane)
        if self.mask is not None:  # lanes beyond the end read the last element, and are dropped
            iteration = self._writer.least(iteration, self._writer.sub(self._extents[v], 1))
        return place.indices(self._writer, access, axes, {**ivs, v: iteration}, self._at)  # type: ignore[union-attr]

    def _moved(self, ivs: Mapping[int, Index], copy: Copy, access: Access) -> dict[int, Index]:
        """Give the iteration that a copy stands for."""
        moved = dict(ivs)
        plan = self._plan
        for axis, by in ((plan.vector, copy.offset), (plan.jam, copy.jam), (plan.row, copy.row)):
            if axis is not None and access.strides[axis] and by:
                moved[axis] = self._writer.add(moved.get(axis, 0), by)
        return moved


def _is_part(tensor: Value) -> bool:
    """Whether a tensor is a slice of another: in memory it lies in steps, and LLVM gathers from what has none."""
    made = tensor.owner
    while getattr(made, "name", None) in _RESHAPES:
        made = made.operands[0].owner
    return getattr(made, "name", None) == "tensor.extract_slice"


_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.cast")


def plan_varying(plan: LoopPlan, access: Access) -> Varying:
    """Say whether what an access touches differs among the copies of a tile."""
    return Varying(
        jam=plan.jam is not None and bool(access.strides[plan.jam]),
        lanes=plan.vector is not None and bool(access.strides[plan.vector]),
        row=plan.row is not None and bool(access.strides[plan.row]),
    )
