"""The other order of passes: rounds outermost, each implementation with its own pause, estimate and counts.

This is how Triton's ``do_bench`` times one function, repeated for each implementation in each round. The
passes are those of every other way in; only their order, their counts and what precedes them live here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernelmark.device import Device
from kernelmark.errors import UsageError
from kernelmark.records import Cache, PassRecord, Timing
from kernelmark.timing.passes import AfterPass, Passes, Round, opened, reset_then_flush, verify_references
from kernelmark.timing.reading import Conditions, build_timing
from kernelmark.timing.schedule import Slot
from kernelmark.timing.timer import Call, Samples, Timer
from kernelmark.units import NS_PER_MS, format_time

__all__ = ["BudgetedCounts", "FixedCounts", "InRounds", "RoundCounts", "RoundsOptions", "time_in_rounds"]

ESTIMATE_CALLS = 5
COUNT_WITHOUT_ESTIMATE = 1000
"""How often a call runs whose five estimated calls took no time on the clock; as in Triton's Proton timers."""

FEW_SAMPLES = 5
"""With fewer samples in a round its mean is at the mercy of one of them, and the row says so."""

_sleep = time.sleep

Prepare = Callable[[], object]


@dataclass(frozen=True, slots=True)
class BudgetedCounts:
    """Counts from budgets: ``max(1, int(budget / estimate))``, the estimate from five calls.

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
    """Counts that do not depend on the call; nothing is estimated, and warm-ups are prepared like samples."""

    warmup: int
    repeat: int


@dataclass(frozen=True, slots=True)
class RoundsOptions:
    """How rounds are run.

    Args:
        counts: How many warm-ups and samples each implementation gets in each round.
        rounds: How often everything is measured anew.
        cooldown_s: The pause right before each implementation in each round; 0 is none at all.
        before: Makes what comes before each call from its reset; the reset and a flush without it.
    """

    counts: BudgetedCounts | FixedCounts
    rounds: int = 1
    cooldown_s: float = 1.0
    before: Callable[[Prepare | None], Prepare] | None = None


@dataclass(frozen=True, slots=True)
class RoundCounts:
    """What one implementation was given in one round."""

    warmup: int
    samples: int
    estimate_ns: float | None
    """Of one call with what precedes it; ``None`` where the counts are fixed."""


@dataclass(frozen=True, slots=True)
class InRounds:
    """One implementation: its passes, one a round, and what each round gave it."""

    timing: Timing
    counts: tuple[RoundCounts, ...]


def time_in_rounds(
    calls: Mapping[str, Call],
    device: Device,
    *,
    timer: Timer,
    options: RoundsOptions,
    after_pass: AfterPass | None = None,
) -> dict[str, InRounds]:
    """Time ``calls`` one after the other, ``options.rounds`` times over.

    Each turn is: pause, one call, a wait for the device, the estimate, warm-ups, samples.

    Args:
        calls: What to time, by name, in the order of each round.
        device: Where the calls run.
        timer: The instrument; it is opened here and is closed when this returns or raises.
        options: Counts, rounds, pause.
        after_pass: Called after each pass with the name, the pass's record and its last call's result.

    Raises:
        UsageError: there is nothing to time.
        TimingError: the instrument cannot vouch for its readings.
        Exception: whatever a call, a reset or ``after_pass`` raises, with a note that names the call.
    """
    if not calls:
        raise UsageError("there is nothing to time: give at least one call")
    passes: dict[str, list[tuple[PassRecord, Samples]]] = {name: [] for name in calls}
    counts: dict[str, list[RoundCounts]] = {name: [] for name in calls}
    with opened(timer, device):
        turns = {name: _Turn.of(call, device, options) for name, call in calls.items()}
        loop = Passes(device, timer, after_pass, count_copies=True)  # a launch is all that it does
        for index in range(options.rounds):
            for position, (name, turn) in enumerate(turns.items()):
                if options.cooldown_s:
                    _sleep(options.cooldown_s)
                try:
                    given = turn.warm_up(loop, options.counts)
                    passes[name].append(loop.one_pass(turn.timed, Slot(name, index, position), given.samples))
                except Exception as error:
                    error.add_note(f"while {name!r} was timed, in round {index + 1} of {options.rounds}")
                    raise
                counts[name].append(given)
        verify_references(timer)
        notes = {name: (*timer.notes, *timer.notes_on(call)) for name, call in calls.items()}
    return {name: _in_rounds(timer, passes[name], counts[name], notes[name]) for name in calls}


@dataclass(frozen=True, slots=True)
class _Turn:
    """One implementation, ready to be run warm (no flush) and as it is timed."""

    warm: Round
    timed: Round

    @classmethod
    def of(cls, call: Call, device: Device, options: RoundsOptions) -> _Turn:
        if options.before is not None:
            timed = Round(call, options.before(call.reset))
            return cls(timed, timed)
        flushed = reset_then_flush(call.reset, device.flusher())
        return cls(Round(call, reset_then_flush(call.reset, None)), Round(call, flushed))

    def warm_up(self, loop: Passes, wanted: BudgetedCounts | FixedCounts) -> RoundCounts:
        """Do all that precedes the samples, and say how many there are to be."""
        if isinstance(wanted, FixedCounts):
            loop.warm_up(self.timed, wanted.warmup)
            return RoundCounts(wanted.warmup, wanted.repeat, None)
        loop.warm_up(self.warm, 1)
        estimate = _estimate(loop, self.timed if wanted.flush_in_estimate else self.warm)
        warmup = 0 if wanted.warmup_ms is None else _fit(wanted.warmup_ms, estimate)
        loop.warm_up(self.warm, warmup)
        return RoundCounts(warmup, _fit(wanted.repeat_ms, estimate), estimate)


def _estimate(loop: Passes, each: Round) -> float:
    """Give the host's time of one round: five are queued at once, so that waiting is paid for once."""
    start = loop.timer.clock()
    loop.warm_up(each, ESTIMATE_CALLS)
    return (loop.timer.clock() - start) / ESTIMATE_CALLS


def _fit(budget_ms: float, estimate_ns: float) -> int:
    if estimate_ns <= 0:
        return COUNT_WITHOUT_ESTIMATE
    return max(1, int(budget_ms * NS_PER_MS / estimate_ns))


def _in_rounds(
    timer: Timer, passes: list[tuple[PassRecord, Samples]], counts: list[RoundCounts], notes: tuple[str, ...]
) -> InRounds:
    conditions = Conditions(
        timer=timer.name,
        tells_gap=timer.tells_gap,
        cache=Cache.COLD,
        warmup_count=sum(each.warmup for each in counts),
        calibration_ns=None,
        instrument_empty_ns=None,
        notes=(*notes, *_notes(counts)),
    )
    return InRounds(build_timing(passes, conditions), tuple(counts))


def _notes(counts: list[RoundCounts]) -> tuple[str, ...]:
    notes = []
    unclocked = sum(each.estimate_ns is not None and each.estimate_ns <= 0 for each in counts)
    if unclocked:
        notes.append(
            f"{COUNT_WITHOUT_ESTIMATE} calls in {unclocked} of {len(counts)} rounds: the clock did not move during"
            f" {ESTIMATE_CALLS} calls, so no budget could be divided by their time"
        )
    fewest = min(counts, key=lambda each: each.samples)
    if fewest.samples < FEW_SAMPLES and fewest.estimate_ns is not None:
        notes.append(
            f"only {fewest.samples} samples in a round, since one call takes {format_time(fewest.estimate_ns, 3)} with"
            " what precedes it; a larger repeat budget gives more"
        )
    return tuple(notes)
