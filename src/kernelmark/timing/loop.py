"""The one loop that takes times: whatever the order, the counts and the pauses, all implementations together.

A round is ``reset → flush → run(*args)``; a pass is rounds read by the timer with garbage collection off and the
device's state noted beside it. The protocol (:mod:`kernelmark.timing.protocol`) says which passes there are. What lies
between the two ends of a reading belongs to the timer; what the numbers mean belongs to nobody here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from statistics import fmean, median

from kernelmark.device import Device
from kernelmark.errors import TimingError, UsageError
from kernelmark.isolation import turn_to_time
from kernelmark.records import Cache, PassRecord, Timing
from kernelmark.timing.budget import Cost, Counts, corrected, shared_counts
from kernelmark.timing.protocol import CALIBRATION_ROUNDS, FixedCounts, Slot, TimingOptions, Turns, order_of
from kernelmark.timing.reading import (
    COUNT_WITHOUT_ESTIMATE,
    Conditions,
    build_timing,
    other_clocks,
    protocol_notes,
)
from kernelmark.timing.timer import (
    SYNCHRONOUS_KINDS,
    Call,
    Samples,
    Timer,
    collection_off,
    do_nothing,
    opened,
)
from kernelmark.units import NS_PER_MS, NS_PER_US

__all__ = ["AfterPass", "time_together"]

AfterPass = Callable[[str, PassRecord, object], object]
"""Called after each pass, outside all timing: name, record, and what the pass's last call returned."""

_PREPARE_ROUNDS = 2
_EMPTY_ROUNDS = {Cache.COLD: 5, Cache.WARM: 100}
"""A cold round costs a flush, up to 20 ms and more; a warm one costs nothing."""

_LEAD_IN_ROUNDS = 2
"""Untimed rounds at the start of a warm pass, but no more than it has samples.

One brings the data back into the caches that the pass before filled with other data. After one, the first
sample of a 1 MiB softmax still read 306 µs where the rest read 170 µs, since the C library had given the
output's pages back to the system in between; after two it read what the rest did (measured on a CPU).
"""

_REPEATED_SHARE = 0.5
"""How many blocks may be run again for a clock, as a share of all: half as long again at most."""

_sleep = time.sleep

Pass = tuple[PassRecord, Samples]


def time_together(
    calls: Mapping[str, Call],
    device: Device,
    *,
    timer: Timer,
    options: TimingOptions | None = None,
    after_pass: AfterPass | None = None,
) -> dict[str, Timing]:
    """Time ``calls`` under the same conditions, interleaved in blocks of passes A B C C B A, or in rounds of turns.

    Where turns are handed out (:mod:`kernelmark.isolation`), all of it is one turn, and the notes say what was held.

    Args:
        calls: What to time, by name; the order is the order in the first half of a block.
        device: Where the calls run.
        timer: The instrument; it is opened here and is closed when this returns or raises.
        options: The protocol: counts, order, pauses, stop, cache state and copy policy.
        after_pass: Called after each pass with the name, the pass's record and its last call's result.

    Raises:
        UsageError: there is nothing to time.
        TimingError: the instrument cannot vouch for its readings.
        Exception: whatever a call, a reset or ``after_pass`` raises, with a note that names the call.
    """
    if not calls:
        raise UsageError("there is nothing to time: give at least one call")
    options = options or TimingOptions()
    with turn_to_time() as held, opened(timer, device):
        loop = _Loop.over(calls, device, timer, options, after_pass)
        loop.run()
        timer.verify_own_references()
        notes = {name: (*timer.notes, *timer.notes_on(call)) for name, call in calls.items()}
    return {name: loop.timing(name, notes[name], (held,) if held else ()) for name in calls}


def reset_then_flush(
    reset: Callable[[], object] | None, flush: Callable[[], object] | None
) -> Callable[[], object]:
    """Return what runs before each call: the reset, then the flush, which evicts what the reset wrote."""
    if reset is None or flush is None:
        return reset or flush or do_nothing

    def prepare() -> None:
        reset()
        flush()

    return prepare


@dataclass(frozen=True, slots=True)
class _Round:
    """One call, ready to run: ``prepare`` is what comes before it."""

    call: Call
    prepare: Callable[[], object]

    def run(self) -> None:
        """Run one round untimed, and drop what it returns."""
        self.prepare()
        self.call.run(*self.call.args)


@dataclass(frozen=True, slots=True)
class _Lead:
    """What precedes the samples of one pass, and how many of them there are."""

    samples: int
    warmup: int
    """Untimed rounds right before the first sample."""
    round: _Round
    """What is run untimed."""
    estimate_ns: float | None = None


@dataclass(slots=True)
class _Contestant:
    """One implementation while it is timed."""

    timed: _Round
    warm: _Round
    """The same without a flush; for turns."""
    cost: Cost | None = None
    counts: Counts | None = None
    workers: Collection[str] = ()
    """The threads that its own calls leave at work."""
    passes: dict[tuple[int, int], Pass] = field(default_factory=dict)
    """By block and position."""
    repeated: int = 0

    def blocks(self, count: int) -> list[list[int | float]]:
        """Give the busy times of the first ``count`` blocks."""
        found: list[list[int | float]] = [[] for _ in range(count)]
        for (block, _), (record, _) in self.passes.items():
            found[block].extend(record.device_busy_ns)
        return found


@dataclass(slots=True)
class _Loop:
    """One comparison while it is timed."""

    device: Device
    timer: Timer
    options: TimingOptions
    after_pass: AfterPass | None
    contestants: dict[str, _Contestant]
    empty_ns: float | None = None
    planned: int = 0
    """Blocks that were planned, or rounds."""
    ended_early: str = ""

    @classmethod
    def over(
        cls,
        calls: Mapping[str, Call],
        device: Device,
        timer: Timer,
        options: TimingOptions,
        after_pass: AfterPass | None,
    ) -> _Loop:
        """Make each call ready to run; the device allocates what evicts its caches."""
        before = options.turns.before if options.turns else None
        own = options.turns.flush if options.turns else None
        flush = (own or device.flusher()) if options.cache is Cache.COLD and before is None else None
        contestants = {}
        for name, call in calls.items():
            timed = _Round(call, before(call.reset) if before else reset_then_flush(call.reset, flush))
            warm = timed if before else _Round(call, reset_then_flush(call.reset, None))
            contestants[name] = _Contestant(timed, warm)
        loop = cls(device, timer, options, after_pass, contestants)
        if timer.reads_empty and before is None:
            loop.empty_ns = loop._measure_empty(reset_then_flush(None, flush))
        return loop

    def run(self) -> None:
        """Take all samples."""
        names = tuple(self.contestants)
        self.planned = self.options.turns.rounds if self.options.turns else self._calibrate_and_warm_up()
        block = 0
        while block < self.planned and not self.ended_early:
            self._run_block(names, block)
            block += 1
            if block == 1 and self.options.turns is None:
                self.planned = self._correct_counts()
            if self.options.stop is not None and self.options.adapts and block < self.planned:
                self.ended_early = self.options.stop.reached(
                    {name: each.blocks(block) for name, each in self.contestants.items()}
                )
        self._repeat_under_one_clock(names, block)

    def timing(self, name: str, of_timer: tuple[str, ...], held: tuple[str, ...]) -> Timing:
        """Give the record of one implementation."""
        each, options = self.contestants[name], self.options
        passes = [each.passes[key] for key in sorted(each.passes)]
        records = [record for record, _ in passes]
        return build_timing(
            passes,
            Conditions(
                timer=self.timer.name,
                tells_gap=self.timer.tells_gap and not (options.turns and options.turns.exchange),
                cache=options.cache,
                warmup_count=each.counts.warmup if each.counts else sum(p.lead_in or 0 for p in records),
                calibration_ns=each.cost.estimate_ns if each.cost else None,
                instrument_empty_ns=self.empty_ns,
                repeated_passes=each.repeated or None,
                compares_clocks=self._compares_clocks(),
                notes=(
                    *of_timer,
                    *(each.counts.notes if each.counts else ()),
                    *protocol_notes(records, options, planned=self.planned, ended_early=self.ended_early),
                    *held,
                ),
            ),
        )

    # --- the phases before the samples ---

    def _measure_empty(self, prepare: Callable[[], object]) -> float:
        """Return what the timer reads for a call that does nothing, prepared like the others."""
        with collection_off():
            samples = self.timer.sample(Call(do_nothing), prepare, _EMPTY_ROUNDS[self.options.cache])
        return median(samples.latency_ns)

    def _calibrate_and_warm_up(self) -> int:
        """Find out the counts of blocks, warm everything up, and give the number of blocks."""
        costs = {name: self._calibrate(each) for name, each in self.contestants.items()}
        counts = shared_counts(costs, self.options.budget)
        for name, each in self.contestants.items():
            each.cost, each.counts = costs[name], counts[name]
            self.device.settle(each.workers)
            self._warm_up(each.timed, counts[name].warmup)
            # a call finds its own workers as the call before left them, and no others
            each.workers = self.device.working()
        return min(each.blocks for each in counts.values())

    def _calibrate(self, contestant: _Contestant) -> Cost:
        """Estimate what a round costs, after one round that compiles, allocates and loads what it needs.

        The shortest of the rounds counts: what holds one up, such as another process, makes it longer and never
        shorter. On two busy cores the median of five read 24 ms in 2 of 8 runs, for a call of 35 µs.
        """
        each = contestant.timed
        self.device.settle()
        each.run()
        contestant.workers = (
            self.device.working()
        )  # before anything is waited for: an idle worker is soon asleep
        self.device.synchronize()
        self.device.settle(contestant.workers)
        clock, prepare_ns = self.timer.clock, []
        for _ in range(_PREPARE_ROUNDS):
            start = clock()
            each.prepare()
            self.device.synchronize()
            prepare_ns.append(clock() - start)
        with collection_off():
            samples = self.timer.sample(
                each.call, each.prepare, CALIBRATION_ROUNDS, count_copies=self.options.count_copies
            )
        self._check_count(samples, CALIBRATION_ROUNDS)
        self.timer.take_result()
        return Cost(estimate_ns=min(samples.latency_ns), prepare_ns=min(prepare_ns))

    def _correct_counts(self) -> int:
        """Look after the first block whether the calibration was disturbed; give the number of blocks."""
        planned = {name: each.counts for name, each in self.contestants.items() if each.counts}
        costs = {name: each.cost for name, each in self.contestants.items() if each.cost}
        shortest = {name: min(map(min, each.blocks(1))) for name, each in self.contestants.items()}
        found = corrected(planned, costs, self.options.budget, shortest_ns=shortest)
        for name, counts in found.items():
            self.contestants[name].counts = counts
        return min(each.blocks for each in found.values())

    def _warm_up(self, each: _Round, count: int) -> None:
        for _ in range(count):
            each.run()
        self.device.synchronize()

    # --- blocks and passes ---

    def _run_block(self, names: tuple[str, ...], block: int) -> None:
        what = "round" if self.options.turns else "block"
        for slot in order_of(names, block, turns=self.options.turns is not None):
            try:
                each = self.contestants[slot.name]
                lead = self._take_turn(each) if self.options.turns else self._lead_in(each, slot, len(names))
                each.passes[block, slot.position] = self._run_pass(each, slot, lead)
            except Exception as error:
                if slot.name:
                    error.add_note(f"while {slot.name!r} was timed, in {what} {block + 1} of {self.planned}")
                raise

    def _lead_in(self, each: _Contestant, slot: Slot, names: int) -> _Lead:
        """Say how a pass of a block begins.

        A cold pass has no untimed rounds: the flush before its first sample evicts what the implementation before
        it left, no sample of a pass was seen to differ by its place, and each lead-in would cost a flush.
        """
        assert each.counts is not None  # blocks are counted before the first of them runs
        samples = each.counts.passes[slot.block][slot.position >= names]
        warmup = min(_LEAD_IN_ROUNDS, samples) if self.options.cache is Cache.WARM else 0
        return _Lead(samples, warmup, each.timed)

    def _take_turn(self, each: _Contestant) -> _Lead:
        """Pause, call once and estimate; say how the pass of this turn begins."""
        turns = self.options.turns or Turns(FixedCounts(0, 1))
        if turns.cooldown_s:
            _sleep(turns.cooldown_s)
        wanted = turns.counts
        if isinstance(wanted, FixedCounts):
            return _Lead(wanted.repeat, wanted.warmup, each.timed)
        self._warm_up(each.warm, 1)
        each.workers = self.device.working()
        self.device.settle(each.workers)
        estimate = self._estimate(each.timed if wanted.flush_in_estimate else each.warm)
        warmup = 0 if wanted.warmup_ms is None else _fit(wanted.warmup_ms, estimate)
        return _Lead(_fit(wanted.repeat_ms, estimate), warmup, each.warm, estimate)

    def _estimate(self, each: _Round) -> float:
        """Give the host's time of one round: five are queued at once, so that waiting is paid for once."""
        start = self.timer.clock()
        self._warm_up(each, CALIBRATION_ROUNDS)
        return (self.timer.clock() - start) / CALIBRATION_ROUNDS

    def _run_pass(self, each: _Contestant, slot: Slot, lead: _Lead) -> Pass:
        self.device.settle(each.workers)
        before = self.device.telemetry()
        with collection_off():
            if lead.warmup:
                self._warm_up(lead.round, lead.warmup)
            collected = self.timer.collect(each.timed.call, each.timed.prepare, lead.samples)
        # before anything is attributed: a device that waits for that is soon at another clock
        after = self.device.telemetry()
        samples = self.timer.attribute(collected, count_copies=self.options.count_copies)
        self._check_count(samples, lead.samples)
        record = PassRecord(
            block=slot.block,
            position=slot.position,
            latency_ns=samples.latency_ns,
            device_busy_ns=samples.device_busy_ns,
            n_kernels=samples.n_kernels,
            n_copies=samples.n_copies,
            n_memsets=samples.n_memsets,
            uncounted_copy_ns=samples.uncounted_copy_ns,
            retries=samples.retries,
            lead_in=lead.warmup or None,
            estimate_ns=lead.estimate_ns,
            before=before,
            after=after,
        )
        if self.options.turns:
            _refuse_no_time(slot.name, samples)
        if self.options.turns and self.options.turns.exchange:
            record = self.options.turns.exchange(slot.name, record)
        if self.after_pass is None:
            self.timer.take_result()
        else:  # no name here may hold the result: it must be gone before the next pass begins
            self.after_pass(slot.name, record, self.timer.take_result())
        return record, samples

    def _check_count(self, samples: Samples, count: int) -> None:
        if len(samples.latency_ns) != count:
            raise TimingError(
                f"the {self.timer.name} timer gave {len(samples.latency_ns)} readings for {count} calls;"
                " none of them can be told from the others, so no time is given"
            )

    # --- one clock for all passes ---

    def _compares_clocks(self) -> bool:
        """Whether the clock that the device tells is that of the work.

        A processor's is not: each core has its own, and those of idle cores are in what is read.
        """
        return self.device.kind not in SYNCHRONOUS_KINDS

    def _repeat_under_one_clock(self, names: tuple[str, ...], done: int) -> None:
        """Run blocks again in which some pass ran under another clock than its siblings, within the budget."""
        if not (self.options.adapts and self._compares_clocks()):
            return
        for _ in range(math.ceil(_REPEATED_SHARE * done)):
            odd = sorted(
                {
                    record.block
                    for each in self.contestants.values()
                    for record in other_clocks([record for record, _ in each.passes.values()])
                }
            )
            if not odd:
                return
            self._run_block(names, odd[0])
            for each in self.contestants.values():
                each.repeated += sum(block == odd[0] for block, _ in each.passes)


def _fit(budget_ms: float, estimate_ns: float) -> int:
    if estimate_ns <= 0:
        return COUNT_WITHOUT_ESTIMATE
    return max(1, int(budget_ms * NS_PER_MS / estimate_ns))


def _refuse_no_time(name: str, samples: Samples) -> None:
    for column in (samples.latency_ns, samples.device_busy_ns):
        mean = fmean(column)
        if not (math.isfinite(mean) and mean > 0):
            raise TimingError(
                f"{name!r} read {mean / NS_PER_US!r} µs in one round, which is no time; none is given"
            )
