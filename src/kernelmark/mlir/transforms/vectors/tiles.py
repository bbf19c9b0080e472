"""Writes the loops of one stage: nests that run in the same loops, by one plan.

Outermost the parallel loops, then the jammed one and the vectors, then the loops that results are carried through.
Results that every iteration has one of are written in the innermost loop; the others stay in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernelmark.mlir.transforms.vectors.accesses import Access
from kernelmark.mlir.transforms.vectors.combining import (
    combine,
    joined_place,
    neutral,
    reduce_place,
    reduce_vector,
)
from kernelmark.mlir.transforms.vectors.functions import Functions
from kernelmark.mlir.transforms.vectors.lanes import Copy, Lanes, Supply, Varying, converted
from kernelmark.mlir.transforms.vectors.loads import Loads
from kernelmark.mlir.transforms.vectors.nests import Combiner, Nest, Start
from kernelmark.mlir.transforms.vectors.numbers import Numbers, is_float
from kernelmark.mlir.transforms.vectors.places import Held, Place, Position
from kernelmark.mlir.transforms.vectors.plans import LoopPlan
from kernelmark.mlir.transforms.vectors.reading import Value, filled
from kernelmark.mlir.transforms.vectors.writing import Index, Writer

__all__ = ["Kit", "StageWriter"]


@dataclass(frozen=True, slots=True)
class Kit:
    """What everything that writes needs."""

    writer: Writer
    functions: Functions
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class _Result:
    """One result of one nest of the stage."""

    nest: int
    number: int
    write: Access
    stored: bool
    combiner: Combiner | None
    varying: Varying
    element: Any
    """The type it is computed in."""

    @property
    def buffer(self) -> int:
        return self.write.buffer


@dataclass(slots=True)
class _Tile:
    """What is computed at once: copies, and the mask over the last of them."""

    copies: list[Copy]
    width: int
    mask: Value | None = None


@dataclass(slots=True)
class _State:
    """What loops carry: tensors being written, and results being accumulated."""

    tensors: list[Value]
    sums: dict[tuple[int, Copy], Value] = field(default_factory=dict)

    def values(self) -> list[Value]:
        return [*self.tensors, *self.sums.values()]

    def renewed(self, values: Sequence[Value]) -> _State:
        cut = len(self.tensors)
        return _State(list(values[:cut]), dict(zip(self.sums, values[cut:], strict=True)))


class StageWriter:
    """Writes one stage."""

    def __init__(
        self,
        kit: Kit,
        nests: Sequence[Nest],
        plan: LoopPlan,
        extents: Sequence[Index],
        places: Mapping[int, Place],
        at: Position,
    ) -> None:
        self._kit = kit
        self._writer = kit.writer
        self._nests = nests
        self._plan = plan
        self._extents = extents
        self._places = places
        self._at = at
        self._axes = nests[0].axes
        self._partial = plan.vector is not None and plan.vector in plan.carried
        self._results = [
            self._result(n, number) for n, nest in enumerate(nests) for number in range(len(nest.writes))
        ]
        self._written = [each for each in self._results if not isinstance(places[each.buffer], Held)]

    def write(self) -> None:
        """Write the loops, and leave in the places what the written tensors have become."""
        tensors = [self._places[each.buffer].tensor for each in self._written]  # type: ignore[union-attr]
        tensors = self._parallel(0, {}, tensors)
        for result, tensor in zip(self._written, tensors, strict=True):
            self._places[result.buffer].tensor = tensor  # type: ignore[union-attr]

    def _result(self, n: int, number: int) -> _Result:
        nest, plan = self._nests[n], self._plan
        write = nest.writes[number]
        stored = not nest.reduces
        lanes = plan.vector is not None and bool(write.strides[plan.vector])
        partial = self._partial and not lanes
        return _Result(
            nest=n,
            number=number,
            write=write,
            stored=stored,
            combiner=nest.body.combiners[number],
            varying=Varying(
                jam=plan.jam is not None and bool(write.strides[plan.jam]),
                lanes=lanes or (partial and not stored),
            ),
            element=self._kit.numbers.computed(nest.operation.results[number].type.element_type),
        )

    # --- loops around a tile ---

    def _parallel(self, level: int, ivs: dict[int, Index], tensors: list[Value]) -> list[Value]:
        if level == len(self._plan.parallel):
            return self._jam(ivs, tensors)
        k = self._plan.parallel[level]
        return self._writer.loop(
            0, self._extents[k], 1, tensors, lambda iv, now: self._parallel(level + 1, {**ivs, k: iv}, now)
        )

    def _jam(self, ivs: dict[int, Index], tensors: list[Value]) -> list[Value]:
        k, by = self._plan.jam, self._plan.jam_by
        if k is None:
            return self._vectors(ivs, tensors, 1)
        whole = self._writer.whole(self._extents[k], by)
        tensors = self._writer.loop(
            0, whole, by, tensors, lambda iv, now: self._vectors({**ivs, k: iv}, now, by)
        )
        return self._writer.loop(
            whole, self._extents[k], 1, tensors, lambda iv, now: self._vectors({**ivs, k: iv}, now, 1)
        )

    def _vectors(self, ivs: dict[int, Index], tensors: list[Value], jam: int) -> list[Value]:
        plan, writer = self._plan, self._writer
        v = plan.vector
        if v is None or self._partial:
            copies = _copies(jam, plan.unroll)
            return self._tile(ivs, tensors, _Tile(copies, plan.width))
        extent = self._extents[v]
        step = plan.width * plan.unroll
        whole = writer.whole(extent, step)

        def tile(copies: list[Copy], width: int, masked: bool) -> Callable[[Index, list[Value]], list[Value]]:
            def body(iv: Index, now: list[Value]) -> list[Value]:
                mask = self._mask(writer.sub(extent, iv)) if masked else None
                return self._tile({**ivs, v: iv}, now, _Tile(copies, width, mask))

            return body

        tensors = writer.loop(0, whole, step, tensors, tile(_copies(jam, plan.unroll), plan.width, False))
        if plan.unroll > 1:
            more = writer.whole(extent, plan.width)
            tensors = writer.loop(whole, more, plan.width, tensors, tile(_copies(jam, 1), plan.width, False))
            whole = more
        if plan.masked:
            return writer.loop(whole, extent, plan.width, tensors, tile(_copies(jam, 1), plan.width, True))
        return writer.loop(whole, extent, 1, tensors, tile(_copies(jam, 1), 1, False))

    def _mask(self, left: Index) -> Value:
        writer = self._writer
        boolean = writer.ir.IntegerType.get_signless(1)
        return writer.vector.create_mask(writer.vector_type(self._plan.width, boolean), [writer.index(left)])

    # --- one tile ---

    def _tile(self, ivs: dict[int, Index], tensors: list[Value], tile: _Tile) -> list[Value]:
        state = _State(list(tensors))
        for r, result in enumerate(self._results):
            if not result.stored:
                for copy in _distinct(tile.copies, result.varying):
                    state.sums[r, copy] = self._beginning(result, ivs, copy, tile)
        state = self._carried(0, ivs, state, tile)
        for r, result in enumerate(self._results):
            if not result.stored:
                self._finish(r, ivs, state, tile)
        return state.tensors

    def _beginning(self, result: _Result, ivs: dict[int, Index], copy: Copy, tile: _Tile) -> Value:
        writer = self._writer
        if self._partial and result.combiner is not None and not self._place_pair(result):
            value = neutral(writer, result.combiner, result.element)
        else:
            value = self._start(result, ivs, copy, tile)
        return writer.splat(value, tile.width) if result.varying.lanes else value

    def _place_pair(self, result: _Result) -> bool:
        """Whether a result is an extreme whose place is noted, or that place: both begin where they start."""
        combiners = self._nests[result.nest].body.combiners
        after = combiners[result.number + 1 : result.number + 2]
        return result.combiner is Combiner.PLACE or after == (Combiner.PLACE,)

    def _start(self, result: _Result, ivs: dict[int, Index], copy: Copy, tile: _Tile) -> Value:
        writer, nest = self._writer, self._nests[result.nest]
        start = nest.starts[result.number]
        if start is Start.NOTHING:
            return writer.zero(result.element)
        if start is Start.VALUE:
            outs = len(nest.operation.operands) - len(nest.writes)
            value = filled(nest.operation.operands[outs + result.number])
            return converted(writer, value, result.element) if is_float(result.element) else value
        initial = nest.initial[result.number]
        assert initial is not None  # by Start.TENSOR
        return self._loads(tile).read(initial, nest.axes, ivs, copy, result.element)

    def _loads(self, tile: _Tile) -> Loads:
        return Loads(
            self._kit.writer,
            self._kit.numbers,
            self._plan,
            self._places,
            self._at,
            tile.width,
            tile.mask,
            self._extents,
        )

    # --- loops that results are carried through ---

    def _carried(self, level: int, ivs: dict[int, Index], state: _State, tile: _Tile) -> _State:
        carried = self._plan.carried
        if level == len(carried):
            return self._iteration(ivs, state, tile)
        k = carried[level]
        if level < len(carried) - 1:
            return self._loop(
                k,
                0,
                self._extents[k],
                1,
                state,
                lambda iv, now: self._carried(level + 1, {**ivs, k: iv}, now, tile),
            )
        extent = self._extents[k]
        if self._plan.cascade and isinstance(extent, int) and extent > self._plan.cascade:
            return self._cascade(k, ivs, state, tile, extent)
        return self._innermost(k, 0, extent, ivs, state, tile)

    def _cascade(self, k: int, ivs: dict[int, Index], state: _State, tile: _Tile, extent: int) -> _State:
        """Add up blocks from zero, and then the blocks."""
        writer, block = self._writer, self._plan.cascade

        def body(start: Index, outer: _State) -> _State:
            fresh = _State(list(outer.tensors))
            for key, value in outer.sums.items():
                result = self._results[key[0]]
                assert result.combiner is not None  # the plan has no cascade otherwise
                zero = neutral(writer, result.combiner, result.element)
                width = value.type.shape[0] if writer.is_vector(value) else 1
                fresh.sums[key] = writer.splat(zero, width)
            stop = writer.least(writer.add(start, block), extent)
            inner = self._innermost(k, start, stop, ivs, fresh, tile)
            for key, value in outer.sums.items():
                combiner = self._results[key[0]].combiner
                assert combiner is not None
                inner.sums[key] = combine(writer, combiner, value, inner.sums[key])
            return inner

        return self._loop(k, 0, extent, block, state, body)

    def _innermost(
        self, k: int, start: Index, stop: Index, ivs: dict[int, Index], state: _State, tile: _Tile
    ) -> _State:
        writer, plan = self._writer, self._plan
        if k != plan.vector:
            return self._loop(
                k, start, stop, 1, state, lambda iv, now: self._iteration({**ivs, k: iv}, now, tile)
            )
        step = plan.width * plan.unroll
        length = writer.sub(stop, start)
        whole = writer.add(start, writer.whole(length, step))
        state = self._loop(
            k, start, whole, step, state, lambda iv, now: self._iteration({**ivs, k: iv}, now, tile)
        )
        first = [copy for copy in tile.copies if copy.vector == 0]
        single = _Tile(first, tile.width)
        if plan.unroll > 1:
            more = writer.add(start, writer.whole(length, plan.width))
            state = self._loop(
                k,
                whole,
                more,
                plan.width,
                state,
                lambda iv, now: self._iteration({**ivs, k: iv}, now, single),
            )
            whole = more

        def rest(iv: Index, now: _State) -> _State:
            masked = _Tile(first, tile.width, self._mask(writer.sub(stop, iv)))
            return self._iteration({**ivs, k: iv}, now, masked)

        return self._loop(k, whole, stop, plan.width, state, rest)

    def _loop(
        self,
        axis: int,
        start: Index,
        stop: Index,
        step: int,
        state: _State,
        body: Callable[[Index, _State], _State],
    ) -> _State:
        del axis
        values = self._writer.loop(
            start, stop, step, state.values(), lambda iv, now: body(iv, state.renewed(now)).values()
        )
        return state.renewed(values)

    # --- one iteration ---

    def _iteration(self, ivs: dict[int, Index], state: _State, tile: _Tile) -> _State:
        writer = self._writer
        state = _State(list(state.tensors), dict(state.sums))
        loads = self._loads(tile)
        lanes = Lanes(writer, self._kit.functions, self._kit.numbers, tile.width)
        for n, nest in enumerate(self._nests):
            results = {each.number: (r, each) for r, each in enumerate(self._results) if each.nest == n}
            supply = self._supply(nest, results, ivs, state, loads)
            values = lanes.write(nest.operation, tile.copies, supply)
            for number, (r, result) in results.items():
                if result.stored:
                    loads.live[result.buffer] = (result.varying, values[number])
                    self._store(result, values[number], ivs, state, tile)
                else:
                    for copy in _distinct(tile.copies, result.varying):
                        state.sums[r, copy] = self._accumulated(
                            state.sums[r, copy], values[number][copy], result, tile
                        )
        return state

    def _supply(
        self,
        nest: Nest,
        results: dict[int, tuple[int, _Result]],
        ivs: dict[int, Index],
        state: _State,
        loads: Loads,
    ) -> Supply:
        inputs = len(nest.reads)

        def argument(k: int, copy: Copy) -> Value:
            if k < inputs:
                element = self._kit.numbers.computed(nest.operation.operands[k].type.element_type)
                return loads.read(nest.reads[k], nest.axes, ivs, copy, element)
            r, result = results[k - inputs]
            if result.stored:  # what an output held before: a start that a parallel nest reads
                return self._start(result, ivs, copy, _Tile([copy], loads.width, loads.mask))
            return state.sums[r, result.varying.of(copy)]

        def varies(k: int) -> Varying:
            if k < inputs:
                return loads.varying(nest.reads[k])
            result = results[k - inputs][1]
            if not result.stored:
                return result.varying
            initial = nest.initial[result.number]
            return loads.varying(initial) if initial else Varying()

        def access(dimension: int) -> Access:
            return next(each for each in nest.indices if each.buffer == -1 - dimension)

        return Supply(
            argument=argument,
            argument_varies=varies,
            counter=lambda d, copy: loads.counter(access(d), nest.axes, ivs, copy),
            counter_varies=lambda d: loads.varying(access(d)),
            gather=loads.gather,
        )

    def _accumulated(self, before: Value, after: Value, result: _Result, tile: _Tile) -> Value:
        writer = self._writer
        if result.varying.lanes:
            after = writer.splat(after, tile.width)
        masked = tile.mask is not None and self._partial and result.varying.lanes
        return writer.op("arith.select", [after.type], [tile.mask, after, before]) if masked else after

    def _store(
        self, result: _Result, values: dict[Copy, Value], ivs: dict[int, Index], state: _State, tile: _Tile
    ) -> None:
        """Write what one iteration computed, unless the row keeps it in a register."""
        place = self._places[result.buffer]
        if isinstance(place, Held):
            place.value = values[tile.copies[0]]
            return
        slot = next(k for k, each in enumerate(self._written) if each is result)
        loads = self._loads(tile)
        for copy in _distinct(tile.copies, result.varying):
            state.tensors[slot] = loads.write(
                values[copy], state.tensors[slot], result.write, self._nests[result.nest].axes, ivs, copy
            )

    # --- results that were carried ---

    def _finish(self, r: int, ivs: dict[int, Index], state: _State, tile: _Tile) -> None:
        result = self._results[r]
        values = {copy: value for (number, copy), value in state.sums.items() if number == r}
        if self._partial and result.varying.lanes and not result.write.strides[self._plan.vector]:  # type: ignore[index]
            values = self._reduced(r, ivs, state, tile)
            result = replace(result, varying=Varying(jam=result.varying.jam))
            tile = _Tile(tile.copies, 1)
        self._store_as(self._results[r], result, values, ivs, state, tile)

    def _store_as(
        self,
        original: _Result,
        result: _Result,
        values: dict[Copy, Value],
        ivs: dict[int, Index],
        state: _State,
        tile: _Tile,
    ) -> None:
        place = self._places[result.buffer]
        if isinstance(place, Held):
            place.value = next(iter(values.values()))
            return
        slot = next(k for k, each in enumerate(self._written) if each is original)
        loads = self._loads(tile)
        for copy in _distinct(tile.copies, result.varying):
            state.tensors[slot] = loads.write(
                values[copy], state.tensors[slot], result.write, self._nests[result.nest].axes, ivs, copy
            )

    def _reduced(self, r: int, ivs: dict[int, Index], state: _State, tile: _Tile) -> dict[Copy, Value]:
        """Put the partial results of a reduction together, lane by lane and then across lanes."""
        writer, result = self._writer, self._results[r]
        found: dict[Copy, Value] = {}
        vectors = sorted({copy.vector for copy in tile.copies})
        for jam in sorted({copy.jam for copy in tile.copies}):
            mine = [Copy(jam if result.varying.jam else 0, vector) for vector in vectors]
            if self._place_pair(result):
                found[Copy(mine[0].jam, 0)] = self._reduced_place(r, state, mine)
                continue
            assert result.combiner is not None  # the plan lies no vectors along it otherwise
            parts = [state.sums[r, copy] for copy in mine]
            while len(parts) > 1:
                pairs = zip(parts[::2], parts[1::2], strict=False)
                odd = parts[len(parts) // 2 * 2 :]
                parts = [combine(writer, result.combiner, a, b) for a, b in pairs] + odd
            value = reduce_vector(writer, result.combiner, parts[0])
            if self._nests[result.nest].starts[result.number] is not Start.NOTHING:
                start = self._start(result, ivs, mine[0], _Tile(tile.copies, 1))
                value = combine(writer, result.combiner, start, value)
            found[Copy(mine[0].jam, 0)] = value
        return found

    def _reduced_place(self, r: int, state: _State, copies: list[Copy]) -> Value:
        result = self._results[r]
        is_place = result.combiner is Combiner.PLACE
        best, where = (r - 1, r) if is_place else (r, r + 1)
        extreme = self._results[best].combiner
        assert extreme is not None
        pair = (state.sums[best, copies[0]], state.sums[where, copies[0]])
        for copy in copies[1:]:
            other = (state.sums[best, copy], state.sums[where, copy])
            pair = joined_place(self._writer, extreme, pair, other)
        return reduce_place(self._writer, extreme, *pair)[1 if is_place else 0]


def _copies(jam: int, vectors: int) -> list[Copy]:
    return [Copy(j, u) for j in range(jam) for u in range(vectors)]


def _distinct(copies: list[Copy], varying: Varying) -> list[Copy]:
    return sorted({varying.of(copy) for copy in copies}, key=lambda copy: (copy.jam, copy.vector))
