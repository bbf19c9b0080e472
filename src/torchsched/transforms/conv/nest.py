"""Writes a convolution's loops: which thread computes what, the tiles of a row, and the sums of a tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torchsched.transforms.conv.matching import Convolution
from torchsched.transforms.conv.meetings import Loop, Met, Run, ends_apart, phase_of, runs_of
from torchsched.transforms.conv.packing import packed_input, packed_weights
from torchsched.transforms.conv.storing import Rows, interleaved, stored
from torchsched.transforms.conv.taps import Dimension
from torchsched.transforms.conv.tiles import Tile
from torchsched.transforms.gemm.emit import Emitter, Index, Slice, Value
from torchsched.transforms.gemm.sharing import Space, part_of

__all__ = ["emit_convolution", "shared_axis"]


def shared_axis(shape: Sequence[int], groups: int, threads: int) -> int | None:
    """Choose the dimension of the result that threads share: 0 for the batch, 1 for groups, or the first places.

    ``None`` where one thread does all, or no dimension keeps every thread busy for most of the time.
    """
    counts = {0: shape[0], 1: groups}
    if len(shape) > 3:
        counts[2] = shape[2]
    best: tuple[float, int] | None = None
    for axis, count in counts.items():
        busy = count / (-(-count // threads) * threads)
        if count > 1 and (best is None or busy > best[0] + 0.05):
            best = busy, axis
    return best[1] if best is not None and best[0] > 0.6 and threads > 1 else None


def emit_convolution(e: Emitter, convolution: Convolution, tile: Tile, threads: int) -> Value:
    """Write everything; give the result, with groups and channels in one dimension."""
    return _Nest(e, convolution, tile, threads).emit()


@dataclass(frozen=True, slots=True)
class _At:
    """Where a row of results is: batch, group, the first channel and its block, places, and the phase in a row."""

    batch: Index
    group: Index
    block: Index
    channel: Index
    places: tuple[Index, ...]
    """Of the outer dimensions."""
    phase: Index = 0


class _Nest:
    def __init__(self, e: Emitter, convolution: Convolution, tile: Tile, threads: int) -> None:
        self.e, self.convolution, self.tile, self.threads = e, convolution, tile, threads
        self.dimensions = convolution.dimensions
        self.last: Dimension = convolution.dimensions[-1]
        self.element = convolution.element
        self.vector = e.vector_type(tile.lanes, self.element)
        self.channels = tile.channels(convolution.outputs)
        self.blocks = -(-convolution.outputs // self.channels)
        self.ends_apart = ends_apart(self.last)
        # Phases of a row that are summed up one after the other wait for each other.
        self.waits = self.last.spread > 1 and tile.phases == 1
        self.rows = Rows(
            phases=self.last.spread,
            channels=self.channels,
            turns=self.last.turns,
            out=self.last.out,
            lanes=tile.lanes,
        )
        self.result = convolution.op.results[0].type.element_type

    def emit(self) -> Value:
        e, convolution = self.e, self.convolution
        self.source = packed_input(e, convolution)
        self.weights = packed_weights(e, convolution, self.tile, self.threads)
        self.initial = convolution.initial
        if self.initial is not None and getattr(self.initial.type, "rank", 0) > 1:
            self.initial = e.reshaped(self.initial, convolution.shape)
        out = e.empty(convolution.shape, self.result)
        spaces = [Space(self.rows.shape, self.element)] if self.waits else []
        whole = [(0, convolution.batch), (0, convolution.groups), (0, self._first_places())]
        axis = shared_axis(convolution.shape, convolution.groups, self.threads)
        if axis is None:
            begin = [space.empty(e) for space in spaces]
            return self._ranges(whole, [0] * len(convolution.shape), [out, *begin])[0]
        return self._shared(axis, whole, spaces, out)

    def _first_places(self) -> int:
        return self.dimensions[0].out if len(self.dimensions) > 1 else 1

    # --- threads ---

    def _shared(
        self, axis: int, whole: Sequence[tuple[int, int]], spaces: Sequence[Space], out: Value
    ) -> Value:
        e, shape = self.e, self.convolution.shape
        count = min(self.threads, whole[axis][1])

        def worker(numbers: Sequence[Index], outs: Sequence[Value]) -> list[Slice]:
            ranges: list[tuple[Index, Index]] = list(whole)
            lower, upper = ranges[axis] = part_of(e, whole[axis], numbers[0], count)
            unit = self.convolution.outputs if axis == 1 else 1
            offsets: list[Index] = [0] * len(shape)
            sizes: list[Index] = list(shape)
            offsets[axis], sizes[axis] = e.mul(lower, unit), e.mul(e.sub(upper, lower), unit)
            if whole[axis][1] % count == 0:
                sizes[axis] = whole[axis][1] // count * unit
            own = [
                space.copy_of(e, copies, numbers[0]) for space, copies in zip(spaces, outs[1:], strict=True)
            ]
            part = e.slice(outs[0], offsets, sizes)
            done = self._ranges(ranges, offsets, [part, *(value for value, *_ in own)])
            where = [(offsets, sizes), *((at, size) for _, at, size in own)]
            return [(value, at, size) for value, (at, size) in zip(done, where, strict=True)]

        begin = [out, *(e.empty((count, *space.shape), space.element) for space in spaces)]
        return e.forall([count], begin, worker)[0]

    # --- rows ---

    def _ranges(
        self, ranges: Sequence[tuple[Index, Index]], origin: Sequence[Index], values: Sequence[Value]
    ) -> list[Value]:
        """Write the loops around a row: batch, group, block of channels, and outer places."""
        e = self.e
        batches, groups, first = ranges
        outer = [first, *((0, each.out) for each in self.dimensions[1:-1])][: len(self.dimensions) - 1]

        def places(at: _At, rest: Sequence[tuple[Index, Index]], values: Sequence[Value]) -> list[Value]:
            if not rest:
                return self._row(at, origin, values)

            def turn(place: Index, *now: Value) -> list[Value]:
                return places(
                    _At(at.batch, at.group, at.block, at.channel, (*at.places, place)), rest[1:], now
                )

            return e.carry((*rest[0], 1), values, turn)

        def block(batch: Index, group: Index, number: Index, *now: Value) -> list[Value]:
            # The last block begins where it has all its channels; some of them are computed twice.
            begin = e.mul(number, self.channels)
            if self.convolution.outputs % self.channels:
                begin = e.least(begin, self.convolution.outputs - self.channels)
            return places(_At(batch, group, number, begin, ()), outer, now)

        def group(batch: Index, number: Index, *now: Value) -> list[Value]:
            return e.carry((0, self.blocks, 1), now, partial(block, batch, number))

        def batch(number: Index, *now: Value) -> list[Value]:
            return e.carry((*groups, 1), now, partial(group, number))

        return e.carry((*batches, 1), values, batch)

    def _row(self, at: _At, origin: Sequence[Index], values: Sequence[Value]) -> list[Value]:
        """Write the tiles of a row; of one whose phases wait for each other, what puts them together."""
        e = self.e
        if not self.waits:
            return self._tiles(at, origin, values)
        out, scratch = values

        def phase(number: Index, scratch: Value) -> list[Value]:
            now = _At(at.batch, at.group, at.block, at.channel, at.places, number)
            return self._tiles(now, origin, [scratch])

        (scratch,) = e.carry((0, self.last.spread, 1), [scratch], phase)
        return [self.rows.join(e, scratch, out, partial(self._finished, at, origin)), scratch]

    def _tiles(self, at: _At, origin: Sequence[Index], values: Sequence[Value]) -> list[Value]:
        e, places, turns = self.e, self.tile.places, self.last.turns

        def turn(first: Index, *now: Value) -> list[Value]:
            # The last tile begins where it has all its places; some of them are computed twice.
            begin = e.least(first, turns - places) if turns % places else first
            sums = self._sums(at, begin)
            return [self._stored(at, origin, begin, sums, now[0]), *now[1:]]

        if not self.ends_apart:
            return e.carry((0, turns, places), values, turn)
        now = turn(0, *values)
        if turns > places:
            now = e.carry((places, turns - places, places), now, turn)
            now = turn(turns - places, *now)
        return now

    # --- sums ---

    def _sums(self, at: _At, begin: Index) -> list[Value]:
        """Write the sums of a tile, place by place and each with its vectors of channels."""
        e, convolution, tile = self.e, self.convolution, self.tile
        group_channels = e.mul(at.group, convolution.inputs)
        outer = [Met.of(e, each, place) for each, place in zip(self.dimensions, at.places, strict=False)]
        last = self._last_taps(at, begin)
        channels = Loop("i", (0, convolution.inputs), 0, 1, group_channels, 1)
        loops = [*(each.loop(str(number)) for number, each in enumerate(outer))]
        row = last.loop(str(len(outer)))
        # The longer of the two innermost loops goes inside.
        long_row = last.most > convolution.inputs
        loops += [channels, row] if long_row else [row, channels]

        def nested(
            rest: Sequence[Loop], now: Mapping[str, tuple[Index, Index]], places: range, sums: Any
        ) -> list[Value]:
            if not rest:
                return self._step(at, now, places, sums)
            loop = rest[0]

            def turn(places: range, number: Index, *sums: Value) -> list[Value]:
                tap = e.add(loop.first, e.mul(number, loop.step))
                place = e.add(loop.begin, e.mul(number, loop.stride))
                return nested(rest[1:], {**now, loop.name: (tap, place)}, places, sums)

            runs: list[Run] = [(loop.bounds, places)]
            if loop is row and self.ends_apart:
                runs = runs_of(self.last, begin, tile.places)
            for (first, end), met in runs:
                sums = e.carry((first, end, 1), sums, partial(turn, met))
            return sums

        return nested(loops, {}, range(tile.places), self._begun(at) * tile.places)

    def _last_taps(self, at: _At, begin: Index) -> Met:
        e, last = self.e, self.last
        before = last.margins[0]
        base = e.add(e.mul(begin, last.stride), before)
        if self.tile.phases > 1:
            least, largest = last.shifts
            return Met((0, largest - least + 1), 0, e.add(base, least), 1, 1, largest - least + 1)
        count, first, shift = phase_of(e, last, at.phase)
        most = max(each.count for each in last.phases)
        return Met((0, count), first, e.add(base, shift), last.tap_step, last.shift_step, most)

    def _begun(self, at: _At) -> list[Value]:
        """Give what the sums of one place begin with; a tensor is added when they are stored."""
        e, tile, initial = self.e, self.tile, self.initial
        if initial is None or getattr(initial.type, "rank", 0) > 1:
            return [e.zeros(self.vector)] * tile.vectors
        if not hasattr(initial.type, "rank"):
            return [e.splat(e.convert(initial, self.element), tile.lanes)] * tile.vectors
        first = e.add(e.mul(at.group, self.convolution.outputs), at.channel)
        begun = []
        for vector in range(tile.vectors):
            if tile.phases == 1:
                left = min(tile.lanes, self.convolution.outputs - vector * tile.lanes)
                mask = e.mask(tile.lanes, left) if left < tile.lanes else None
                places = [e.add(first, vector * tile.lanes)]
                begun.append(e.convert(e.read(initial, places, tile.lanes, mask), self.element))
                continue
            value = e.zeros(self.vector)
            for lane in range(tile.phases * self.convolution.outputs):
                number = e.read(initial, [e.add(first, lane % self.convolution.outputs)], 1)
                value = e.vector.insert(e.convert(number, self.element), value, [], [lane])
            begun.append(value)
        return begun

    def _step(
        self, at: _At, now: Mapping[str, tuple[Index, Index]], places: range, sums: Sequence[Value]
    ) -> list[Value]:
        """Add the products of one tap and one channel of the input to the sums of some places."""
        e, tile = self.e, self.tile
        names = [str(number) for number in range(len(self.dimensions))]
        taps = [now[name][0] for name in names]
        weights = [
            e.read(
                self.weights,
                [at.group, at.block, *taps, now["i"][0], vector * tile.lanes],
                tile.lanes,
            )
            for vector in range(tile.vectors)
        ]
        *outer, row = [now[name][1] for name in names]
        after = list(sums)
        for place in places:
            column = e.add(row, place * self.last.stride)
            there = self.source.places(at.batch, now["i"][1], outer, column)
            number = e.splat(e.read(self.source.value, there, 1), tile.lanes)
            for vector, weight in enumerate(weights):
                each = place * tile.vectors + vector
                after[each] = e.multiply_add(number, weight, sums[each])
        return after

    # --- results ---

    def _finished(
        self,
        at: _At,
        origin: Sequence[Index],
        channel: Index,
        place: Index,
        sums: Value,
        mask: Value | None,
        out: Value,
    ) -> Value:
        """Store neighbouring sums of a channel of this block, from a place of this row on, in the result."""
        e, initial = self.e, self.initial
        first = e.add(e.mul(at.group, self.convolution.outputs), at.channel)
        indices = [at.batch, e.add(first, channel), *at.places, place]
        if initial is not None and getattr(initial.type, "rank", 0) > 1:
            begun = e.read(initial, indices, self.tile.lanes, mask)
            sums = e.plus(sums, e.convert(begun, self.element))
        if self.result != self.element:
            sums = e.arith.truncf(e.vector_type(self.tile.lanes, self.result), sums)
        return e.write(
            sums, out, [e.sub(one, other) for one, other in zip(indices, origin, strict=True)], mask
        )

    def _stored(
        self, at: _At, origin: Sequence[Index], begin: Index, sums: Sequence[Value], into: Value
    ) -> Value:
        """Store a tile's sums: in the result, or in the rows that wait."""
        e, tile = self.e, self.tile
        for vector in range(tile.vectors):
            mine = list(sums[vector :: tile.vectors])
            for first in range(0, tile.places, tile.lanes):
                block = mine[first : first + tile.lanes]
                columns = e.transpose([*block, *[block[0]] * (tile.lanes - len(block))])
                run = e.add(begin, first), len(block)
                for lane in range(min(tile.lanes, self.channels - vector * tile.lanes)):
                    channel = vector * tile.lanes + lane
                    own = columns[lane :: self.convolution.outputs] if tile.phases > 1 else [columns[lane]]
                    into = self._column(at, origin, run, channel, own[: tile.phases], into)
        return into

    def _column(
        self,
        at: _At,
        origin: Sequence[Index],
        run: tuple[Index, int],
        channel: int,
        phases: Sequence[Value],
        into: Value,
    ) -> Value:
        """Store neighbouring places of one channel."""
        e, last = self.e, self.last
        begin, count = run
        if self.waits:
            return e.write(phases[0], into, [at.phase, channel, begin])
        first = e.mul(begin, last.spread)
        # Only the last tile may have places that are turns of no later phase.
        wanted: Index = count * last.spread
        if last.out % last.spread:
            wanted = e.least(wanted, e.sub(last.out, first))
        store = partial(self._finished, at, origin, channel)
        return stored(e, interleaved(e, phases), (first, wanted), store, into)
