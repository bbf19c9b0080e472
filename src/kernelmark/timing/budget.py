"""How many rounds a comparison runs: budgets in milliseconds in, counts out. Pure.

It knows what a call and its preparation cost, never what they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernelmark.errors import UsageError
from kernelmark.units import NS_PER_MS, format_time

__all__ = ["Budget", "Cost", "Counts", "corrected", "counts", "shared_counts", "spread"]

_WARMUP_SHARE_OF_PREPARE = 1 / 4
"""The warm-up's default budget is a quarter of the samples', and so is what it may spend on preparing."""

_FEWEST = 2
"""A block has two passes of each implementation, so that a drift cancels."""

_DISTURBED = 2.0
"""By how much a calibration may exceed a sample before the counts that follow from it are corrected."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to warm up and to sample each implementation, and the bounds of the counts that follow.

    ``prepare_ms`` bounds the time that resets and flushes may take around the samples of one
    implementation: a flush of a 480 MiB last-level cache takes 20 ms and more (measured on a CPU), so that
    200 samples of a call of 1 µs would cost 4 s of flushing. ``min_count`` is kept whatever it costs.
    ``warmup_count`` is an exact number of warm-up rounds in place of ``warmup_ms``.
    """

    warmup_ms: float = 25.0
    sample_ms: float = 100.0
    min_count: int = 10
    max_count: int = 200
    blocks: int = 10
    prepare_ms: float = 500.0
    warmup_count: int | None = None

    def __post_init__(self) -> None:
        if not _is_time(self.warmup_ms) and self.warmup_ms != 0:
            raise UsageError(f"budget warmup_ms={self.warmup_ms!r}: give a number of milliseconds, or 0")
        for name in ("sample_ms", "prepare_ms"):
            if not _is_time(value := getattr(self, name)):
                raise UsageError(f"budget {name}={value!r}: give a number of milliseconds above 0")
        for name in ("min_count", "max_count", "blocks"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"budget {name}={value!r}: give a whole number of at least 1")
        exact = self.warmup_count
        if exact is not None and (isinstance(exact, bool) or not isinstance(exact, int) or exact < 0):
            raise UsageError(f"budget warmup_count={exact!r}: give a whole number of at least 0, or None")
        if self.max_count < _FEWEST:
            raise UsageError(
                f"budget max_count={self.max_count}: each implementation runs twice in a block, so that"
                f" {_FEWEST} samples are the fewest there can be; give at least {_FEWEST}"
            )
        if self.min_count > self.max_count:
            raise UsageError(
                f"budget min_count={self.min_count} is above max_count={self.max_count}:"
                " lower one or raise the other"
            )


@dataclass(frozen=True, slots=True)
class Cost:
    """What one round of an implementation costs: the call, and the reset and flush before it."""

    estimate_ns: float
    prepare_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Counts:
    """Untimed rounds first, then blocks of two passes each."""

    warmup: int
    passes: tuple[tuple[int, int], ...]
    """Samples of the two passes of each block."""
    notes: tuple[str, ...] = ()
    """What kept the counts from being what the budget asks for, with the numbers."""

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return len(self.passes)

    @property
    def samples(self) -> int:
        """Samples over all passes."""
        return sum(map(sum, self.passes))


def counts(estimate_ns: float, prepare_ns: float, budget: Budget) -> Counts:
    """Say how often to run one implementation on its own."""
    return shared_counts({"": Cost(estimate_ns, prepare_ns)}, budget)[""]


def shared_counts(costs: Mapping[str, Cost], budget: Budget) -> dict[str, Counts]:
    """Say how often to run each implementation of one comparison.

    All share one number of blocks, the smallest that any of them allows, since blocks pair. A block has two
    passes of at least one sample, so an implementation with ``n`` samples allows ``n // 2`` of them.
    """
    wanted = {name: _samples(cost, budget) for name, cost in costs.items()}
    blocks = min([budget.blocks, *(n // 2 for n in wanted.values())])
    return {
        name: Counts(
            warmup=_warmup(cost, budget),
            passes=spread(wanted[name], blocks),
            notes=_notes(cost, wanted[name], blocks, budget),
        )
        for name, cost in costs.items()
    }


def corrected(
    planned: Mapping[str, Counts],
    costs: Mapping[str, Cost],
    budget: Budget,
    *,
    shortest_ns: Mapping[str, float],
) -> dict[str, Counts]:
    """Plan again after the first block, where a calibration turns out to have been disturbed.

    A call that another process holds up while it is calibrated looks longer than it is, and would get the fewest
    samples just where more are needed. One that some sample shows to take less than half of its estimate counts
    as disturbed. What was taken in the first block stays, and is part of the new number.

    Args:
        planned: The counts of which the first block has run.
        costs: What the calibration said.
        budget: What they were made from.
        shortest_ns: The shortest sample of each in that block.
    """
    seen = {
        name: replace(cost, estimate_ns=min(cost.estimate_ns, shortest_ns[name]))
        for name, cost in costs.items()
    }
    wrong = {name for name, cost in costs.items() if cost.estimate_ns > _DISTURBED * seen[name].estimate_ns}
    again = shared_counts(seen, budget)
    taken = {name: sum(each.passes[0]) for name, each in planned.items()}
    left = {name: again[name].samples - taken[name] for name in planned}
    blocks = min(*(each.blocks for each in again.values()), *(1 + each // 2 for each in left.values()))
    more = any(again[name].samples > planned[name].samples for name in planned)
    if not wrong or not more or blocks < max(2, *(each.blocks for each in planned.values())):
        notes = again if wrong else planned
        return {name: replace(each, notes=notes[name].notes) for name, each in planned.items()}
    return {
        name: Counts(
            warmup=planned[name].warmup,
            passes=(planned[name].passes[0], *spread(left[name], blocks - 1)),
            notes=(
                *new.notes,
                *([_correction(costs[name], seen[name], new.samples, blocks)] if name in wrong else ()),
            ),
        )
        for name, new in again.items()
    }


def spread(samples: int, blocks: int) -> tuple[tuple[int, int], ...]:
    """Share samples out over the passes of blocks, all of them, as evenly as blocks that stay mirrored allow.

    What is left over goes to both passes of a block at once, in blocks that lie apart evenly, so that a linear
    drift still cancels there. An odd sample makes one pass of the first block longer. The statistics hold: a
    block counts by its median and once, whatever the number of its samples.
    """
    each, rest = divmod(samples, 2 * blocks)
    pairs, odd = divmod(rest, 2)
    more = [(block + 1) * pairs // blocks - block * pairs // blocks for block in range(blocks)]
    return tuple((each + one + (odd if block == 0 else 0), each + one) for block, one in enumerate(more))


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _samples(cost: Cost, budget: Budget) -> int:
    by_time = _clamp(_fit(budget.sample_ms, cost.estimate_ns), budget)
    return max(_FEWEST, _clamp(min(by_time, _fit(budget.prepare_ms, cost.prepare_ns)), budget))


def _warmup(cost: Cost, budget: Budget) -> int:
    if budget.warmup_count is not None:
        return budget.warmup_count
    if budget.warmup_ms == 0:
        return 0
    by_time = _clamp(_fit(budget.warmup_ms, cost.estimate_ns), budget)
    return _clamp(min(by_time, _fit(budget.prepare_ms * _WARMUP_SHARE_OF_PREPARE, cost.prepare_ns)), budget)


def _fit(budget_ms: float, each_ns: float) -> float:
    """Return how many things of ``each_ns`` fit; a thing that takes no time fits without end."""
    return budget_ms * NS_PER_MS / each_ns if each_ns > 0 else math.inf


def _clamp(count: float, budget: Budget) -> int:
    return int(min(max(count, budget.min_count), budget.max_count))


def _correction(said: Cost, seen: Cost, samples: int, blocks: int) -> str:
    return (
        f"{samples} samples in {blocks} blocks, counted anew after the first block: the calibration read"
        f" {format_time(said.estimate_ns, 3)}, and a sample {format_time(seen.estimate_ns, 3)}"
    )


def _notes(cost: Cost, wanted: int, blocks: int, budget: Budget) -> tuple[str, ...]:
    notes = []
    by_time = _clamp(_fit(budget.sample_ms, cost.estimate_ns), budget)
    if wanted < by_time:
        notes.append(
            f"{wanted} samples rather than {by_time}: reset and flush take {format_time(cost.prepare_ns, 3)}"
            f" before each, and may take {budget.prepare_ms:g} ms in all"
        )
    if cost.estimate_ns * budget.min_count > budget.sample_ms * NS_PER_MS:
        notes.append(
            f"a call takes {format_time(cost.estimate_ns, 3)}, so that {budget.min_count} samples, the fewest"
            f" allowed, exceed the budget of {budget.sample_ms:g} ms"
        )
    if blocks < budget.blocks:
        notes.append(f"{blocks} blocks rather than {budget.blocks}: too few samples fit the budget")
    return tuple(notes)
