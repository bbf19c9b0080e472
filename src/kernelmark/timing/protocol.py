"""The protocol: in which order passes run, how many samples each takes, what precedes them and when to stop. Pure.

All of it is one value, :class:`TimingOptions`, which the loop takes. A block of the usual order runs A B C C B A, so
that a drift that is linear over the block is the same for all; the next one runs C B A A B C, so that no
implementation is always the first after a pause or the one after the slowest. With :class:`Turns` a block is a round
of turns A B C.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, stdev
from typing import Any

from kernelmark.device import Flusher
from kernelmark.errors import UsageError
from kernelmark.records import Cache, PassRecord
from kernelmark.stats import t_quantile
from kernelmark.timing.budget import Budget

__all__ = [
    "CALIBRATION_ROUNDS",
    "AtPrecision",
    "BudgetedCounts",
    "FixedCounts",
    "Slot",
    "Stop",
    "TimingOptions",
    "Turns",
    "order_of",
]

CALIBRATION_ROUNDS = 5
"""Calls from which it is estimated what one takes."""

Prepare = Callable[[], object]
Blocks = Mapping[str, Sequence[Sequence[int | float]]]


class Stop(ABC):
    """Says after each block whether enough is known. It sees numbers, and no device, call or clock."""

    @abstractmethod
    def reached(self, blocks: Blocks) -> str:
        """Say why no more blocks are needed, with value and limit; blank to go on.

        Args:
            blocks: Name to the busy times of each block that is complete, in nanoseconds; the first name is ours.
        """


@dataclass(frozen=True, slots=True)
class AtPrecision(Stop):
    """Stop once every ratio to the first implementation, or its time where it is alone, is known this well.

    The width of an interval decides, and never where it lies: a rule that stops as soon as 1.0 is left out finds
    differences where there are none.

    Args:
        half_width: Half the width of the 95 % interval, relative to the value: 0.01 for 1 %.
        least: Blocks that are run in any case; an interval over few blocks is narrow by chance too often.
    """

    half_width: float = 0.01
    least: int = 5

    def __post_init__(self) -> None:
        if not 0 < self.half_width < 1:
            raise UsageError(f"half_width={self.half_width!r}: give a number between 0 and 1, such as 0.01")
        if isinstance(self.least, bool) or not isinstance(self.least, int) or self.least < 2:
            raise UsageError(f"least={self.least!r}: give a whole number of blocks of at least 2")

    def reached(self, blocks: Blocks) -> str:
        """Compare the widest interval with the limit."""
        done = min(map(len, blocks.values()))
        if done < self.least:
            return ""
        medians = [[median(block) for block in each] for each in blocks.values()]
        if any(not value > 0 for each in medians for value in each):
            return ""
        logs = [[math.log(value) for value in each] for each in medians]
        pairs = [[b - a for a, b in zip(logs[0], each, strict=True)] for each in logs[1:]] or logs
        reach = t_quantile(0.975, done - 1) / math.sqrt(done)
        widest = max(math.expm1(reach * stdev(each)) for each in pairs)
        if widest > self.half_width:
            return ""
        return f"known to {100 * widest:.2g} %, where {100 * self.half_width:.2g} % was asked for"


@dataclass(frozen=True, slots=True)
class BudgetedCounts:
    """Counts of one turn from budgets: ``max(1, int(budget / estimate))``, the estimate from five calls.

    Args:
        warmup_ms: The warm-up's budget; ``None`` for an instrument that has no warm-up.
        repeat_ms: The samples' budget.
        flush_in_estimate: Whether the flush is part of what is estimated, so that the budget covers it.
    """

    warmup_ms: float | None
    repeat_ms: float
    flush_in_estimate: bool = True


@dataclass(frozen=True, slots=True)
class FixedCounts:
    """Counts that depend on nothing, as where several processes must do the same.

    Nothing is estimated, warm-ups are prepared like samples, and no block is left out or repeated.
    """

    warmup: int
    repeat: int


@dataclass(frozen=True, slots=True)
class Turns:
    """Rounds outermost, as Triton's ``do_bench`` times one function, repeated for each implementation in each round.

    A turn is: pause, one call, a wait for the device, the estimate, warm-ups, samples.

    Args:
        counts: How many warm-ups and samples each implementation gets in each turn.
        rounds: How often everything is measured anew.
        cooldown_s: The pause right before each turn; 0 is none at all.
        flush: What evicts the caches, where that is not the device's own.
        before: Makes what comes before each call from its reset; the reset and a flush without it.
        exchange: Takes a pass's name and record and gives the record to keep, as where each sample is that of the
            slowest of several processes.
    """

    counts: BudgetedCounts | FixedCounts
    rounds: int = 1
    cooldown_s: float = 1.0
    flush: Flusher | None = None
    before: Callable[[Prepare | None], Prepare] | None = None
    exchange: Callable[[str, PassRecord], PassRecord] | None = None

    def told(self) -> dict[str, Any]:
        """Give what a run's record tells of how samples were taken."""
        fixed = self.counts if isinstance(self.counts, FixedCounts) else None
        budget = self.counts if isinstance(self.counts, BudgetedCounts) else BudgetedCounts(0.0, 0.0)
        return {
            "blocks": self.rounds,
            "warmup_ms": budget.warmup_ms or 0.0,
            "sample_ms": budget.repeat_ms,
            "prepare_ms": 0.0,
            "min_count": fixed.repeat if fixed else 1,
            "max_count": fixed.repeat if fixed else None,
            "cooldown_s": float(self.cooldown_s),
        }


@dataclass(frozen=True, slots=True)
class TimingOptions:
    """How samples are taken, the same for every implementation of a comparison.

    Args:
        budget: Times and counts, where implementations are interleaved in blocks.
        cache: ``cold`` flushes the caches before every call; ``warm`` does not. Text is accepted.
        count_copies: Whether device-to-device copies inside the call are part of its busy time.
        turns: Rounds of turns in place of interleaved blocks, and in place of ``budget``.
        stop: When fewer blocks than planned are enough; without it all of them are run.
    """

    budget: Budget = field(default_factory=Budget)
    cache: Cache = Cache.COLD
    count_copies: bool = False
    turns: Turns | None = None
    stop: Stop | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.budget, Budget):
            raise UsageError(f"budget={self.budget!r}: give a kernelmark.timing.Budget")
        try:
            object.__setattr__(self, "cache", Cache(self.cache))
        except ValueError:
            raise UsageError(
                f"cache={self.cache!r} is unknown: give {' or '.join(repr(each.value) for each in Cache)}"
            ) from None
        if not isinstance(self.count_copies, bool):
            raise UsageError(f"count_copies={self.count_copies!r}: give True or False")
        if self.stop is not None and not isinstance(self.stop, Stop):
            raise UsageError(f"stop={self.stop!r}: give None or a rule such as AtPrecision(0.01)")

    @property
    def passes(self) -> int:
        """Passes of each implementation, where all blocks are run."""
        return self.turns.rounds if self.turns else 2 * self.budget.blocks

    @property
    def adapts(self) -> bool:
        """Whether what is read may decide how much more is read."""
        return self.turns is None or isinstance(self.turns.counts, BudgetedCounts)


@dataclass(frozen=True, slots=True)
class Slot:
    """One pass: whose, in which block, and at which place in it; both counted from 0."""

    name: str
    block: int
    position: int


def order_of(names: Sequence[str], block: int, *, turns: bool = False) -> tuple[Slot, ...]:
    """Give the passes of one block in the order in which they run."""
    once, back = tuple(names), tuple(reversed(names))
    order = once if turns else (*back, *once) if block % 2 else (*once, *back)
    return tuple(Slot(name, block, position) for position, name in enumerate(order))
