"""Which taps a place meets, where they read, and what of that is known before the code runs: the loops over taps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from torchsched.transforms.conv.taps import Dimension
from torchsched.transforms.gemm.emit import Emitter, Index

__all__ = ["Loop", "Met", "Run", "ends_apart", "phase_of", "runs_of"]

Run: TypeAlias = "tuple[tuple[Index, Index], range]"
"""Neighbouring taps of a row, from where to where, and the places of a tile that meet all of them."""

_TAPS = 11
"""Taps of a row that are written one by one: each is a loop of its own over the channels."""


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of a sum: from where to where, and what it counts: a tap or a channel, and a place in the input."""

    name: str
    bounds: tuple[Index, Index]
    first: Index
    step: int
    begin: Index
    stride: int


@dataclass(frozen=True, slots=True)
class Met:
    """The taps that a place meets along one dimension, and where in the input the first one of its phase reads."""

    bounds: tuple[Index, Index]
    first: Index
    begin: Index
    tap_step: int
    shift_step: int
    most: int
    """Taps of a phase at most."""

    @classmethod
    def of(cls, e: Emitter, dimension: Dimension, place: Index) -> Met:
        """Give those of a place of an outer dimension, without those that read beyond the input."""
        turn = e.div(place, dimension.spread)
        phase = e.rem(place, dimension.spread) if dimension.spread > 1 else 0
        count, first, shift = phase_of(e, dimension, phase)
        begin = e.add(e.mul(turn, dimension.stride), shift)
        step, inside = dimension.shift_step, dimension.inside
        lower: Index = 0
        if dimension.margins[0]:  # begin may be negative, and a division must not see that
            lower = e.div(e.most(e.sub(step - 1, begin), 0), step)
        if dimension.margins[1]:
            count = e.least(count, e.div(e.most(e.sub(inside - 1 + step, begin), 0), step))
        most = max(each.count for each in dimension.phases)
        return cls((lower, count), first, begin, dimension.tap_step, step, most)

    def loop(self, name: str) -> Loop:
        """Give the loop over them."""
        return Loop(name, self.bounds, self.first, self.tap_step, self.begin, self.shift_step)


def phase_of(e: Emitter, dimension: Dimension, phase: Index) -> tuple[Index, Index, Index]:
    """Give count, first tap and shift of a phase that may be known only when the code runs."""
    taps = dimension.phases
    found = []
    for numbers in (
        [each.count for each in taps],
        [each.first for each in taps],
        [each.shift for each in taps],
    ):
        value: Index = numbers[0]
        for number, each in enumerate(numbers):
            if number == 0 or each == numbers[0]:
                continue
            if isinstance(phase, int):
                value = each if phase == number else value
                continue
            here = e.arith.cmpi(e.arith.CmpIPredicate.eq, phase, e.index(number))
            value = e.arith.select(here, e.index(each), e.index(value))
        found.append(value)
    return found[0], found[1], found[2]


def ends_apart(last: Dimension) -> bool:
    """Whether the tiles at the ends of a row are written apart, without the products that have a margin's zeros.

    They are where such products are one in twenty-five or more, and where there are few taps to write one by one.
    """
    if last.spread > 1 or last.kernel > _TAPS:
        return False
    met = sum(
        0 <= place * last.stride + tap * last.dilation - last.low < last.inside
        for place in range(last.out)
        for tap in range(last.kernel)
    )
    return met < 0.96 * last.out * last.kernel


def runs_of(last: Dimension, begin: Index, places: int) -> list[Run]:
    """Give the taps of a row that a tile's places meet, from where to where, and which places meet them.

    Of a tile that may be anywhere, all places meet all taps; some of what they read is a margin's zeros.
    """
    every = range(places)
    if not isinstance(begin, int):
        return [((0, last.kernel), every)]
    runs: list[Run] = []
    for tap in range(last.kernel):
        reach = tap * last.dilation - last.low
        met = [place for place in every if 0 <= (begin + place) * last.stride + reach < last.inside]
        if not met:
            continue
        now = range(met[0], met[-1] + 1)
        if runs and runs[-1][1] == now and runs[-1][0][1] == tap:
            runs[-1] = (runs[-1][0][0], tap + 1), now
        else:
            runs.append(((tap, tap + 1), now))
    return runs
