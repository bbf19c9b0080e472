"""Writes a group of nests as loops in place of its operations: threads, rows, and the stages of one row.

Everything stays on tensors: loops carry what they write, and bufferisation writes in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torchsched.transforms.vectors.grouping import Group, blocked_row
from torchsched.transforms.vectors.nests import Nest
from torchsched.transforms.vectors.parts import Part
from torchsched.transforms.vectors.places import Given, Held, Kept, Passed, Place, Position
from torchsched.transforms.vectors.plans import Choices, plan_loops
from torchsched.transforms.vectors.reading import Program
from torchsched.transforms.vectors.staging import Together, divided_row, stages
from torchsched.transforms.vectors.state import Kit, Stage
from torchsched.transforms.vectors.tiles import StageWriter
from torchsched.transforms.vectors.writing import Index

__all__ = ["Parallel", "write_group"]

Value = Any


@dataclass(frozen=True, slots=True)
class Parallel:
    """How work is divided among threads."""

    threads: int = 1
    grain: int = 32768
    """Elements below which one thread does it all."""


@dataclass(frozen=True, slots=True)
class _Output:
    """A buffer that the group writes and others use."""

    buffer: int
    dimensions: tuple[tuple[int, int], ...]
    """Label and stride, the largest stride first."""
    shape: tuple[int, ...]
    element: Any


@dataclass(frozen=True, slots=True)
class _Passing:
    """A buffer of which a row, or a block of rows, hands its part from nest to nest."""

    size: int
    """Elements that a thread keeps, up to the end of a cache line."""
    element: Any
    steps: dict[int, int]
    """Strides there, by the strides in the whole buffer."""


def write_group(group: Group, program: Program, kit: Kit, choices: Choices, parallel: Parallel) -> None:
    """Replace the operations of ``group`` by loops."""
    ir = kit.writer.ir
    last = program.operations[group.positions[-1]]
    with ir.InsertionPoint(last), last.location:
        outputs = _GroupWriter(group, program, kit, choices, parallel).write()
        for position in group.positions:
            operation = program.operations[position]
            for result in operation.results:
                if (output := outputs.get(result)) is not None:
                    result.replace_all_uses_with(output)
    for position in reversed(group.positions):
        _erase(program.operations[position])


def _erase(operation: Any) -> None:
    """Erase an operation and the reshapes of its results that nothing uses."""
    for result in operation.results:
        for use in list(result.uses):
            _erase(use.owner.operation)
    operation.erase()


class _GroupWriter:
    def __init__(
        self, group: Group, program: Program, kit: Kit, choices: Choices, parallel: Parallel
    ) -> None:
        self._group = group
        self._program = program
        self._kit = kit
        self._writer = kit.writer
        self._choices = choices
        self._parallel = parallel
        self._members = dict(zip(group.positions, group.nests, strict=True))
        together = stages(group.nests, ())
        if len(together) == 1:  # one loop nest: nothing passes from one to the next
            self._stages, self._rows, self._block = together, (), None
        else:
            self._block = blocked_row(group)
            self._rows = tuple(label for label in group.rows if label != self._block)
            self._stages = stages(group.nests, self._rows)
        self._outputs = [each for nest in group.nests for each in self._kept(nest)]
        self._passed = self._passed_on()

    # --- what is written ---

    def _kept(self, nest: Nest) -> list[_Output]:
        found = []
        for number, write in enumerate(nest.writes):
            users = self._program.users.get(write.buffer, set())
            if not users - set(self._group.positions):
                continue
            dims = sorted(
                ((stride, axis) for stride, axis in zip(write.strides, nest.axes, strict=True) if stride),
                key=lambda pair: -pair[0],
            )
            found.append(
                _Output(
                    write.buffer,
                    tuple((axis.label, stride) for stride, axis in dims),
                    tuple(axis.size for _, axis in dims) or (1,),
                    nest.operation.results[number].type.element_type,
                )
            )
        return found

    def write(self) -> dict[Value, Value]:
        """Write everything; give the value that takes each result's place."""
        writer = self._writer
        given = {
            access.buffer: Given(writer.flat(self._program.buffers[access.buffer].value))
            for nest in self._group.nests
            for access in nest.taken
            if self._program.produced.get(access.buffer) not in self._members
        }
        tensors = [writer.empty(output.shape, output.element) for output in self._outputs]
        chosen = self._divided()
        if chosen is None:
            small = [writer.empty((each.size,), each.element) for each in self._passed.values()]
            tensors = self._rows_of(given, Position({}, {}), [*tensors, *small], {})
        else:
            tensors = self._threads(given, chosen, tensors)
        found = {}
        for output, tensor in zip(self._outputs, tensors[: len(self._outputs)], strict=True):
            buffers = self._program.buffers
            value = buffers[output.buffer].value
            found[value] = writer.reshaped(tensor, list(value.type.shape))
            buffers[output.buffer] = replace(buffers[output.buffer], value=tensor)
        return found

    # --- threads ---

    def _divided(self) -> int | None:
        """Choose the label of the loop that is divided among threads."""
        rows = self._group.rows
        work = max(nest.iterations * (1 + 8 * nest.body.functions) for nest in self._group.nests)
        sizes = [self._group.size(label) for label in rows]
        position = divided_row(sizes, work, self._parallel.threads, self._parallel.grain)
        return None if position is None else rows[position]

    def _threads(self, given: Mapping[int, Given], label: int, tensors: list[Value]) -> list[Value]:
        writer, scf, ir = self._writer, self._writer.scf, self._writer.ir
        size = self._group.size(label)
        chunk = -(-size // self._parallel.threads)
        if self._stride_one(label) and chunk > 64:
            chunk = -(-chunk // 64) * 64  # no two threads write one cache line
        count = -(-size // chunk)
        # each thread has a row of what passes from nest to nest: allocated once, outside
        small = [writer.empty((count, each.size), each.element) for each in self._passed.values()]
        loop = scf.ForallOp([0], [count], [1], [*tensors, *small])
        with ir.InsertionPoint(loop.body):
            thread = loop.induction_variables[0]
            writer.learn(thread, 0, count - 1)
            low = writer.times(thread, chunk)
            length = chunk if size % chunk == 0 else writer.least(writer.sub(size, low), chunk)
            slices = [_output_slice(output, label, low, length) for output in self._outputs]
            slices += [
                Part([thread, 0], [1, each.size], each.element, True) for each in self._passed.values()
            ]
            parts = [
                each.extract(writer, whole) for each, whole in zip(slices, loop.inner_iter_args, strict=True)
            ]
            parts = self._rows_of(given, Position({label: low}, {label: low}), parts, {label: length})
            done = scf.InParallelOp()
            with ir.InsertionPoint(done.block):
                for each, part, whole in zip(slices, parts, loop.inner_iter_args, strict=True):
                    each.insert(writer, part, whole)
        return list(loop.results)[: len(tensors)]

    def _stride_one(self, label: int) -> bool:
        return any((label, 1) in output.dimensions for output in self._outputs)

    # --- rows ---

    def _rows_of(
        self, given: Mapping[int, Given], at: Position, tensors: list[Value], lengths: Mapping[int, Index]
    ) -> list[Value]:
        """Write the loops over rows inside what one thread does; the tensors are outputs, then what is passed."""
        writer = self._writer

        def level(depth: int, base: dict[int, Index], run: dict[int, Index], now: list[Value]) -> list[Value]:
            labels = (*self._rows, *(() if self._block is None else (self._block,)))
            if depth == len(labels):
                return self._row(given, Position(base, at.origin), {**lengths, **run}, now)
            label = labels[depth]
            first = base.get(label, 0)
            length = lengths.get(label, self._group.size(label))
            step = self._choices.block if label == self._block else 1

            def row(iv: Index, inner: list[Value]) -> list[Value]:
                whole = isinstance(length, int) and length % step == 0
                left = step if whole or step == 1 else writer.least(writer.sub(length, iv), step)
                return level(depth + 1, {**base, label: writer.add(first, iv)}, {**run, label: left}, inner)

            return writer.loop(0, length, step, now, row)

        return level(0, dict(at.base), {}, tensors)

    def _passed_on(self) -> dict[int, _Passing]:
        """Find what a row hands from nest to nest through memory."""
        outside = {output.buffer for output in self._outputs}
        found = {}
        for nest in self._group.nests:
            for number, write in enumerate(nest.writes):
                if write.buffer in outside:
                    continue
                steps, reach = {}, 1
                inner = sorted(
                    (axis.label != self._block, stride, axis.label, axis.size)
                    for stride, axis in zip(write.strides, nest.axes, strict=True)
                    if stride and axis.label not in self._rows
                )
                for _, stride, label, size in inner:
                    steps[stride] = reach
                    reach *= min(size, self._choices.block) if label == self._block else size
                element = self._kit.numbers.computed(nest.operation.results[number].type.element_type)
                if steps and self._needed(write.buffer, nest):
                    found[write.buffer] = _Passing(-(-reach // 16) * 16, element, steps)
        return found

    def _needed(self, buffer: int, nest: Nest) -> bool:
        """Whether a nest of a later stage reads what one writes, so that it must lie in memory."""
        stage = next(
            k for k, each in enumerate(self._stages) if any(n.operation == nest.operation for n in each.every)
        )
        later = [each for rest in self._stages[stage + 1 :] for each in rest.every]
        reads = {access.buffer for each in later for access in each.taken}
        return buffer in reads

    def _row(
        self,
        given: Mapping[int, Given],
        at: Position,
        lengths: Mapping[int, Index],
        tensors: list[Value],
    ) -> list[Value]:
        """Write the stages of one row, or of one block of rows."""
        places: dict[int, Place] = dict(given)
        for nest in self._group.nests:
            for write in nest.writes:
                places[write.buffer] = Held()
        cut = len(self._outputs)
        for output, tensor in zip(self._outputs, tensors[:cut], strict=True):
            places[output.buffer] = Kept(tensor, output.dimensions)
        for (buffer, passing), tensor in zip(self._passed.items(), tensors[cut:], strict=True):
            places[buffer] = Passed(tensor, passing.steps)
        for stage in self._stages:
            self._stage(stage, places, at, lengths)
        written = [places[each.buffer].tensor for each in self._outputs]  # type: ignore[union-attr]
        return written + [places[buffer].tensor for buffer in self._passed]  # type: ignore[union-attr]

    def _stage(
        self, stage: Together, places: dict[int, Place], at: Position, lengths: Mapping[int, Index]
    ) -> None:
        axes = stage.nests[0].axes
        extents = [lengths.get(axis.label, axis.size) for axis in axes]
        sized = Together(
            tuple(self._sized(nest) for nest in stage.nests), tuple(self._sized(nest) for nest in stage.after)
        )
        plan = plan_loops(sized, self._choices)
        StageWriter(Stage(self._kit, sized, plan, extents, places, at)).write()

    def _sized(self, nest: Nest) -> Nest:
        """Give a nest with the loops that one row, or one block of rows, has."""
        sizes = dict.fromkeys(self._rows, 1)
        if self._block is not None:
            sizes[self._block] = self._choices.block
        axes = tuple(
            replace(axis, size=min(axis.size, sizes.get(axis.label, axis.size))) for axis in nest.axes
        )
        return replace(nest, axes=axes)


def _output_slice(output: _Output, label: int, low: Index, length: Index) -> Part:
    mine = [each == label for each, _ in output.dimensions]
    return Part(
        [low if each else 0 for each in mine] or [0],
        [length if each else size for each, size in zip(mine, output.shape, strict=True)] if mine else [1],
        output.element,
    )
