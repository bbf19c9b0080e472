"""Writes the loops of one stage: nests that run in the same loops, by one plan.

Outermost the parallel loops, then the jammed one and the vectors, then the loops that results are carried through.
Results that every iteration has one of are written in the innermost loop; the others stay in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchsched.transforms.vectors.accesses import Access
from torchsched.transforms.vectors.accumulation import Accumulation
from torchsched.transforms.vectors.combining import combine, neutral
from torchsched.transforms.vectors.lanes import Copy, Lanes, Supply, Varying
from torchsched.transforms.vectors.loads import Loads
from torchsched.transforms.vectors.nests import Nest
from torchsched.transforms.vectors.state import Moment, Result, Stage, State, Tile, copies_of, distinct
from torchsched.transforms.vectors.writing import Index

__all__ = ["StageWriter"]

Value = Any

_INLINED = 64
"""Copies of an iteration that are written one after the other rather than as a loop."""


class StageWriter:
    """Writes one stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._kit = stage.kit
        self._writer = stage.kit.writer
        self._plan = stage.plan
        self._extents = stage.extents
        self._results = stage.results()
        self._accumulation = Accumulation(stage, self._results)

    def write(self) -> None:
        """Write the loops, and leave in the places what the written tensors have become."""
        places = [self._stage.places[each.buffer] for each in self._accumulation.written]
        tensors = self._parallel(0, {}, [each.tensor for each in places])  # type: ignore[union-attr]
        for place, tensor in zip(places, tensors, strict=True):
            place.tensor = tensor  # type: ignore[union-attr]

    # --- loops around a tile ---

    def _parallel(self, level: int, ivs: dict[int, Index], tensors: list[Value]) -> list[Value]:
        if level == len(self._plan.parallel):
            return self._blocked(
                self._plan.row,
                self._plan.row_by,
                ivs,
                tensors,
                lambda inner, now, rows: self._vectors(inner, now, rows),
            )
        k = self._plan.parallel[level]
        return self._writer.loop(
            0, self._extents[k], 1, tensors, lambda iv, now: self._parallel(level + 1, {**ivs, k: iv}, now)
        )

    def _blocked(
        self,
        axis: int | None,
        by: int,
        ivs: dict[int, Index],
        tensors: list[Value],
        body: Callable[[dict[int, Index], list[Value], int], list[Value]],
    ) -> list[Value]:
        """Write a loop over blocks of ``by`` iterations, and what is left over."""
        if axis is None:
            return body(ivs, tensors, 1)
        extent = self._extents[axis]
        whole = self._writer.whole(extent, by)
        if self._plan.square and isinstance(extent, int) and extent >= by:
            tensors = self._writer.loop(
                0, whole, by, tensors, lambda iv, now: body({**ivs, axis: iv}, now, by)
            )
            # a square less would be read element by element: the last one overlaps the one before
            return body({**ivs, axis: extent - by}, tensors, by) if extent > whole else tensors
        tensors = self._writer.loop(0, whole, by, tensors, lambda iv, now: body({**ivs, axis: iv}, now, by))
        if isinstance(whole, int) and isinstance(extent, int):
            left = extent - whole
            return body({**ivs, axis: whole}, tensors, left) if left else tensors
        return self._writer.loop(whole, extent, 1, tensors, lambda iv, now: body({**ivs, axis: iv}, now, 1))

    def _vectors(self, ivs: dict[int, Index], tensors: list[Value], rows: int) -> list[Value]:
        plan, writer = self._plan, self._writer
        v, width = plan.vector, plan.width
        side_by_side = [u * width for u in range(plan.unroll)]
        if v is None or self._stage.partial:
            return self._tile(ivs, tensors, Tile(copies_of(1, rows, side_by_side), width))
        extent = self._extents[v]

        def tile(
            offsets: Sequence[int], lanes: int, masked: bool
        ) -> Callable[[Index, list[Value]], list[Value]]:
            def body(iv: Index, now: list[Value]) -> list[Value]:
                mask = self._mask(writer.sub(extent, iv)) if masked else None
                return self._blocked(
                    plan.jam,
                    plan.jam_by,
                    {**ivs, v: iv},
                    now,
                    lambda inner, more, jam: self._tile(
                        inner, more, Tile(copies_of(jam, rows, offsets), lanes, mask)
                    ),
                )

            return body

        step = width * plan.unroll
        whole = writer.whole(extent, step)
        for first, last in self._turns(whole, step):
            tensors = writer.loop(first, last, step, tensors, tile(side_by_side, width, False))
        if isinstance(extent, int) and isinstance(whole, int) and extent >= width and not plan.once:
            rest = extent - whole
            if not rest:
                return tensors
            # the last vector ends at the last element, and computes some of the one before it again
            offsets = [*range(0, rest - width, width), rest - width]
            return tile(offsets, width, False)(whole, tensors)
        if plan.unroll > 1:
            more = writer.whole(extent, width)
            tensors = writer.loop(whole, more, width, tensors, tile([0], width, False))
            whole = more
        if plan.masked:
            return writer.loop(whole, extent, width, tensors, tile([0], width, True))
        return writer.loop(whole, extent, 1, tensors, tile([0], 1, False))

    def _turns(self, whole: Index, step: int) -> list[tuple[Index, Index]]:
        """Cut the loop over vectors where the first and the last of them alone may lie in padding."""
        padded = any(access.bounds for nest in self._stage.nests for access in nest.taken)
        if not padded or not isinstance(whole, int) or whole <= 2 * step:
            return (
                [(0, whole)]
                if not padded or not isinstance(whole, int)
                else [(first, first + step) for first in range(0, whole, step)]
            )
        return [(0, step), (step, whole - step), (whole - step, whole)]

    def _mask(self, left: Index) -> Value:
        writer = self._writer
        boolean = writer.ir.IntegerType.get_signless(1)
        return writer.vector.create_mask(writer.vector_type(self._plan.width, boolean), [writer.index(left)])

    def _tile(self, ivs: dict[int, Index], tensors: list[Value], tile: Tile) -> list[Value]:
        state = self._accumulation.begun(tensors, ivs, tile)
        state = self._carried(0, ivs, state, tile)
        live = self._accumulation.finish(ivs, state, tile)
        if self._stage.together.after:
            ended = self._accumulation.ended(tile)
            loads = self._stage.loads(ended)
            loads.live.update(live)
            self._run(Moment.AFTER, ivs, state, ended, loads)
        return state.tensors

    # --- loops that results are carried through ---

    def _carried(self, level: int, ivs: dict[int, Index], state: State, tile: Tile) -> State:
        carried = self._plan.carried
        if level == len(carried):
            return self._iteration(ivs, state, tile)
        k = carried[level]
        extent = self._extents[k]
        inline = self._short(carried[level:], len(tile.copies))
        if level < len(carried) - 1:
            return self._loop(
                (0, extent, 1),
                state,
                lambda iv, now: self._carried(level + 1, {**ivs, k: iv}, now, tile),
                inline=inline,
            )
        if inline and k != self._plan.vector:
            return self._loop(
                (0, extent, 1), state, lambda iv, now: self._iteration({**ivs, k: iv}, now, tile), inline=True
            )
        if self._plan.cascade and isinstance(extent, int) and extent > self._plan.cascade:
            return self._cascade(k, ivs, state, tile)
        return self._innermost(k, (0, extent), ivs, state, tile)

    def _short(self, carried: Sequence[int], copies: int) -> bool:
        """Whether what these loops do is short enough to be written without loops, as a pooling's window is."""
        turns = copies
        for k in carried:
            extent = self._extents[k]
            turns *= extent if isinstance(extent, int) else _INLINED + 1
        return turns <= _INLINED and self._plan.vector not in carried

    def _cascade(self, k: int, ivs: dict[int, Index], state: State, tile: Tile) -> State:
        """Add up blocks from zero, and then the blocks."""
        writer, block = self._writer, self._plan.cascade

        def body(start: Index, outer: State) -> State:
            fresh = State(list(outer.tensors))
            for key, value in outer.sums.items():
                result = self._results[key[0]]
                assert result.combiner is not None  # the plan has no cascade otherwise
                zero = neutral(writer, result.combiner, result.element)
                width = value.type.shape[0] if writer.is_vector(value) else 1
                fresh.sums[key] = writer.splat(zero, width)
            stop = writer.least(writer.add(start, block), self._extents[k])
            inner = self._innermost(k, (start, stop), ivs, fresh, tile)
            for key, value in outer.sums.items():
                combiner = self._results[key[0]].combiner
                assert combiner is not None
                inner.sums[key] = combine(writer, combiner, value, inner.sums[key])
            return inner

        return self._loop((0, self._extents[k], block), state, body)

    def _innermost(
        self, k: int, span: tuple[Index, Index], ivs: dict[int, Index], state: State, tile: Tile
    ) -> State:
        writer, plan = self._writer, self._plan
        start, stop = span

        def body(tile: Tile) -> Callable[[Index, State], State]:
            return lambda iv, now: self._iteration({**ivs, k: iv}, now, tile)

        if k != plan.vector:
            return self._loop((start, stop, 1), state, body(tile))
        step = plan.width * plan.unroll
        length = writer.sub(stop, start)
        whole = writer.add(start, writer.whole(length, step))
        state = self._loop((start, whole, step), state, body(tile))
        single = replace(tile, copies=tuple(copy for copy in tile.copies if copy.offset == 0))
        if plan.unroll > 1:
            more = writer.add(start, writer.whole(length, plan.width))
            state = self._loop((whole, more, plan.width), state, body(single))
            whole = more

        def rest(iv: Index, now: State) -> State:
            masked = replace(single, mask=self._mask(writer.sub(stop, iv)))
            return self._iteration({**ivs, k: iv}, now, masked)

        return self._loop((whole, stop, plan.width), state, rest)

    def _loop(
        self,
        bounds: tuple[Index, Index, int],
        state: State,
        body: Callable[[Index, State], State],
        *,
        inline: bool = False,
    ) -> State:
        values = self._writer.loop(
            *bounds,
            state.values(),
            lambda iv, now: body(iv, state.renewed(now)).values(),
            inline=inline,
        )
        return state.renewed(values)

    # --- one iteration ---

    def _iteration(self, ivs: dict[int, Index], state: State, tile: Tile) -> State:
        state = State(list(state.tensors), dict(state.sums))
        self._run(Moment.ITERATION, ivs, state, tile, self._stage.loads(tile))
        return state

    def _run(self, now: Moment, ivs: dict[int, Index], state: State, tile: Tile, loads: Loads) -> None:
        """Write the bodies of the nests that run now, and put their results where they belong."""
        lanes = Lanes(self._writer, self._kit.functions, self._kit.numbers, tile.width)
        for n, nest in enumerate(self._stage.nests):
            results = {each.number: (r, each) for r, each in enumerate(self._results) if each.nest == n}
            if (now is Moment.AFTER) is not all(each.moment is Moment.AFTER for _, each in results.values()):
                continue
            supply = self._supply(nest, results, ivs, state, loads)
            values = lanes.write(nest.operation, tile.copies, supply)
            for number, (r, result) in results.items():
                if result.moment is not Moment.CARRIED:
                    loads.live[result.buffer] = (result.varying, values[number])
                    self._accumulation.store(result, values[number], ivs, state, tile)
                    continue
                for copy in distinct(tile.copies, result.varying):
                    before = state.sums[r, copy]
                    state.sums[r, copy] = self._accumulated(before, values[number][copy], result, tile)

    def _supply(
        self,
        nest: Nest,
        results: Mapping[int, tuple[int, Result]],
        ivs: dict[int, Index],
        state: State,
        loads: Loads,
    ) -> Supply:
        inputs = len(nest.reads)

        def argument(k: int, copy: Copy) -> Value:
            if k < inputs:
                element = self._kit.numbers.computed(nest.operation.operands[k].type.element_type)
                return loads.read(nest.reads[k], nest.axes, ivs, copy, element)
            r, result = results[k - inputs]
            if result.moment is not Moment.CARRIED:  # a body that reads what it will overwrite
                return self._accumulation.start(result, ivs, copy, Tile((copy,), loads.width, loads.mask))
            return state.sums[r, result.varying.of(copy)]

        def varies(k: int) -> Varying:
            if k < inputs:
                return loads.varying(nest.reads[k])
            result = results[k - inputs][1]
            if result.moment is Moment.CARRIED:
                return result.varying
            initial = nest.initial[result.number]
            return loads.varying(initial) if initial else Varying()

        def counter(dimension: int) -> Access:
            return next(each for each in nest.indices if each.buffer == -1 - dimension)

        picks = dict(zip(nest.picked, nest.picks, strict=True))

        def pick(operation: Any, copy: Copy) -> Value:
            element = self._kit.numbers.computed(operation.results[0].type)
            return loads.read(picks[operation], nest.axes, ivs, copy, element)

        return Supply(
            argument=argument,
            argument_varies=varies,
            counter=lambda d, copy: loads.counter(counter(d), nest.axes, ivs, copy),
            counter_varies=lambda d: loads.varying(counter(d)),
            gather=loads.gather,
            pick=lambda operation, copy: pick(operation, copy),
            pick_varies=lambda operation: loads.varying(picks[operation]) if operation in picks else None,
        )

    def _accumulated(self, before: Value, after: Value, result: Result, tile: Tile) -> Value:
        writer = self._writer
        if result.varying.lanes:
            after = writer.splat(after, tile.width)
        if tile.mask is None or not self._stage.partial or not result.varying.lanes:
            return after
        return writer.op("arith.select", [after.type], [tile.mask, after, before])
