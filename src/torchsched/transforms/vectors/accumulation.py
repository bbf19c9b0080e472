"""How the results of a stage that loops carry begin, and how they are put together and stored at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torchsched.transforms.vectors.combining import (
    combine,
    joined_place,
    neutral,
    reduce_place,
    reduce_vector,
)
from torchsched.transforms.vectors.lanes import Copy, Varying, converted
from torchsched.transforms.vectors.nests import Combiner, Start
from torchsched.transforms.vectors.numbers import is_float
from torchsched.transforms.vectors.places import Held
from torchsched.transforms.vectors.reading import filled
from torchsched.transforms.vectors.state import (
    Live,
    Moment,
    Result,
    Stage,
    State,
    Tile,
    distinct,
)
from torchsched.transforms.vectors.writing import Index

__all__ = ["Accumulation"]

Value = Any


class Accumulation:
    """Begins and ends the results of one stage."""

    def __init__(self, stage: Stage, results: list[Result]) -> None:
        self._stage = stage
        self._writer = stage.kit.writer
        self._results = results
        self._written = [each for each in results if not isinstance(stage.places[each.buffer], Held)]

    @property
    def written(self) -> list[Result]:
        """The results that have a tensor, in the order that loops carry them."""
        return self._written

    # --- beginning ---

    def begun(self, tensors: list[Value], ivs: Mapping[int, Index], tile: Tile) -> State:
        """Give what the loops inside a tile begin with."""
        state = State(list(tensors))
        for r, result in enumerate(self._results):
            if result.moment is Moment.CARRIED:
                for copy in distinct(tile.copies, result.varying):
                    state.sums[r, copy] = self._beginning(result, ivs, copy, tile)
        return state

    def _beginning(self, result: Result, ivs: Mapping[int, Index], copy: Copy, tile: Tile) -> Value:
        writer = self._writer
        if self._stage.partial and result.combiner is not None and not self._has_place(result):
            value = neutral(writer, result.combiner, result.element)
        else:
            value = self.start(result, ivs, copy, tile)
        return writer.splat(value, tile.width) if result.varying.lanes else value

    def start(self, result: Result, ivs: Mapping[int, Index], copy: Copy, tile: Tile) -> Value:
        """Give what a result is before the first iteration."""
        writer, nest = self._writer, self._stage.nests[result.nest]
        start = nest.starts[result.number]
        if start is Start.NOTHING:
            return writer.zero(result.element)
        if start is Start.VALUE:
            outs = len(nest.operation.operands) - len(nest.writes)
            value = filled(nest.operation.operands[outs + result.number])
            return converted(writer, value, result.element) if is_float(result.element) else value
        initial = nest.initial[result.number]
        assert initial is not None  # by Start.TENSOR
        return self._stage.loads(tile).read(initial, nest.axes, ivs, copy, result.element)

    def _has_place(self, result: Result) -> bool:
        """Whether a result is an extreme whose place is noted, or that place: both begin where they start."""
        combiners = self._stage.nests[result.nest].body.combiners
        after = combiners[result.number + 1 : result.number + 2]
        return result.combiner is Combiner.PLACE or after == (Combiner.PLACE,)

    # --- storing ---

    def store(
        self,
        result: Result,
        values: Mapping[Copy, Value],
        ivs: Mapping[int, Index],
        state: State,
        tile: Tile,
    ) -> None:
        """Write a result, or keep it for the nests after this one."""
        place = self._stage.places[result.buffer]
        if isinstance(place, Held):
            place.value = next(iter(values.values()))
            return
        slot = next(k for k, each in enumerate(self._written) if each is result)
        loads = self._stage.loads(tile)
        for copy in distinct(tile.copies, result.varying):
            axes = self._stage.nests[result.nest].axes
            state.tensors[slot] = loads.write(
                values[copy], state.tensors[slot], result.write, axes, ivs, copy
            )

    def finish(self, ivs: Mapping[int, Index], state: State, tile: Tile) -> Live:
        """Store what the loops inside a tile have accumulated, and give it to those that take it from there."""
        found: Live = {}
        for r, result in enumerate(self._results):
            if result.moment is not Moment.CARRIED:
                continue
            if self._stage.partial:
                values = self._reduced(r, ivs, state, tile)
                found[result.buffer] = (replace(result.varying, lanes=False), values)
            else:
                values = {copy: value for (number, copy), value in state.sums.items() if number == r}
                found[result.buffer] = (result.varying, values)
            self.store(result, values, ivs, state, self.ended(tile))
        return found

    def ended(self, tile: Tile) -> Tile:
        """Give the tile of what is left once the loops inside have ended: partial results have become one each."""
        if not self._stage.partial:
            return tile
        single = distinct(tile.copies, Varying(jam=True, row=True))
        return Tile(tuple(single), 1)

    def _reduced(self, r: int, ivs: Mapping[int, Index], state: State, tile: Tile) -> dict[Copy, Value]:
        """Put the partial results of a reduction together, lane by lane and then across lanes."""
        writer, result = self._writer, self._results[r]
        found: dict[Copy, Value] = {}
        offsets = sorted({copy.offset for copy in tile.copies})
        for first in distinct(tile.copies, replace(result.varying, lanes=False)):
            mine = [replace(first, offset=offset) for offset in offsets]
            if self._has_place(result):
                found[first] = self._reduced_place(r, state, mine)
                continue
            assert result.combiner is not None  # the plan lies no vectors along it otherwise
            parts = [state.sums[r, copy] for copy in mine]
            while len(parts) > 1:
                pairs = zip(parts[::2], parts[1::2], strict=False)
                odd = parts[len(parts) // 2 * 2 :]
                parts = [combine(writer, result.combiner, a, b) for a, b in pairs] + odd
            value = reduce_vector(writer, result.combiner, parts[0])
            if self._stage.nests[result.nest].starts[result.number] is not Start.NOTHING:
                start = self.start(result, ivs, mine[0], replace(tile, width=1, mask=None))
                value = combine(writer, result.combiner, start, value)
            found[first] = value
        return found

    def _reduced_place(self, r: int, state: State, copies: list[Copy]) -> Value:
        is_place = self._results[r].combiner is Combiner.PLACE
        best, where = (r - 1, r) if is_place else (r, r + 1)
        extreme = self._results[best].combiner
        assert extreme is not None  # a place has an extreme beside it
        pair = (state.sums[best, copies[0]], state.sums[where, copies[0]])
        for copy in copies[1:]:
            other = (state.sums[best, copy], state.sums[where, copy])
            pair = joined_place(self._writer, extreme, pair, other)
        return reduce_place(self._writer, extreme, *pair)[1 if is_place else 0]
