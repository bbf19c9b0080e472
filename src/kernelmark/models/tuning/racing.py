"""Who stays in a race: successive halving, in which an interval decides before a rank does. Numbers only.

A rung measures every challenger that is left next to the incumbent. A challenger whose interval lies above 1 takes
certainly longer and leaves; one whose interval lies below 1 takes the incumbent's place. Of the rest, the better half
goes on to the next rung, which has three times the samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kernelmark.records import Ratio
from kernelmark.timing import Budget

__all__ = ["CONFIRMATION", "GROUP", "PROTOCOL_NOTE", "RUNGS", "Drop", "Fate", "Race", "groups"]

RUNGS = (
    Budget(warmup_ms=5, sample_ms=20, prepare_ms=100, min_count=8, max_count=40, blocks=4),
    Budget(warmup_ms=10, sample_ms=60, prepare_ms=300, min_count=16, max_count=80, blocks=8),
    Budget(warmup_ms=25, sample_ms=180, prepare_ms=900, min_count=24, max_count=160, blocks=12),
)
"""What each implementation is given in a run of each rung. Half stay and each gets three times as much, so that a
rung costs half as much again as the one before it. Four blocks are the fewest that give an interval worth asking:
Student's factor is 12.7 with two blocks, 4.3 with three and 3.2 with four."""

CONFIRMATION = Budget(warmup_ms=25, sample_ms=300, prepare_ms=1500, min_count=40, max_count=200, blocks=20)
"""What the winner and the default are given at the end, in a process of their own."""

GROUP = 4
"""Challengers of one run. Incumbent and default take part in each, so that few would measure those most of the time,
and many would let the machine drift within a block."""

_KEPT = 1 / 2

PROTOCOL_NOTE = (
    "the protocol is that of the confirmation; the runs of the race are shorter:"
    f" {', '.join(f'{rung.blocks} blocks of up to {rung.max_count} samples' for rung in RUNGS)}"
)
"""What a reader of the whole run must know: its header holds one protocol."""


class Fate(StrEnum):
    """Why a challenger left the race."""

    SLOWER = "certainly slower than the incumbent"
    BEHIND = "not in the better half"
    FAILED = "failed while it was measured"


@dataclass(frozen=True, slots=True)
class Drop:
    """One challenger's end."""

    fate: Fate
    rung: int
    """Counted from 0."""


@dataclass(frozen=True, slots=True)
class Race:
    """How a race stands. Candidates are numbers, and 0 is the default."""

    incumbent: int = 0
    alive: tuple[int, ...] = ()
    """The challengers, without the incumbent."""
    dropped: Mapping[int, Drop] = field(default_factory=dict)

    def after(self, rung: int, ratios: Mapping[int, Ratio], *, last: bool = False) -> Race:
        """Give the standing after a rung.

        Args:
            rung: Which it was, from 0.
            ratios: Of the challengers that were measured: their time over the incumbent's.
            last: Whether no rung follows, so that the undecided need not be told apart.
        """
        measured = {number: ratios[number] for number in self.alive if number in ratios}
        better = {
            number: each for number, each in measured.items() if each.high is not None and each.high < 1
        }
        best = min(better, key=lambda number: better[number].value, default=None)
        bar = 1.0 if best is None else better[best].high or 1.0
        slower = [
            number
            for number, each in measured.items()
            if number != best and each.low is not None and each.low > bar
        ]
        left = [number for number in measured if number != best and number not in slower]
        keep = len(left) if last else math.ceil(len(left) * _KEPT)
        ranked = sorted(left, key=lambda number: measured[number].value)
        behind = ranked[keep:]
        drops = {
            **self.dropped,
            **{number: Drop(Fate.SLOWER, rung) for number in slower},
            **{number: Drop(Fate.BEHIND, rung) for number in behind},
        }
        if best is not None and self.incumbent != 0:
            drops[self.incumbent] = Drop(Fate.SLOWER, rung)
        gone = {*slower, *behind, best}
        return Race(
            self.incumbent if best is None else best,
            tuple(number for number in self.alive if number not in gone),
            drops,
        )

    def without(self, number: int, rung: int) -> Race:
        """Give the standing where a contestant failed; the default takes the place of an incumbent that did."""
        return replace(
            self,
            incumbent=0 if number == self.incumbent else self.incumbent,
            alive=tuple(each for each in self.alive if each != number),
            dropped={**self.dropped, number: Drop(Fate.FAILED, rung)},
        )


def groups(numbers: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Part the challengers of a rung into runs of about the same size."""
    count = math.ceil(len(numbers) / GROUP)
    return tuple(tuple(numbers[start::count]) for start in range(count))
