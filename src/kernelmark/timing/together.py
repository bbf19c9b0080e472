"""The one loop that takes times: calibrate, warm up, then blocks of passes, all implementations together.

Every round, in every phase, is ``reset → flush → run(*args)``. The loop owns that order and the counts; what
happens around a pass is in ``passes``. What lies between the two ends of a reading belongs to the timer; what
the numbers mean belongs to nobody here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median

from kernelmark.device import Device
from kernelmark.errors import UsageError
from kernelmark.records import Cache, PassRecord, Timing
from kernelmark.timing.budget import Cost, shared_counts
from kernelmark.timing.options import TimingOptions
from kernelmark.timing.passes import (
    AfterPass,
    Passes,
    Round,
    collection_off,
    do_nothing,
    opened,
    reset_then_flush,
    verify_references,
)
from kernelmark.timing.reading import Conditions, build_timing
from kernelmark.timing.schedule import schedule
from kernelmark.timing.timer import Call, Samples, Timer
from kernelmark.timing.turn import turn_to_time

__all__ = ["AfterPass", "time_together"]

_CALIBRATION_ROUNDS = 5
_PREPARE_ROUNDS = 2
_EMPTY_ROUNDS = {Cache.COLD: 5, Cache.WARM: 100}
"""A cold round costs a flush, up to 20 ms and more; a warm one costs nothing."""

_LEAD_IN_ROUNDS = 2
"""Untimed rounds at the start of a warm pass, but no more than it has samples.

One brings the data back into the caches that the pass before filled with other data. After one, the first
sample of a 1 MiB softmax still read 306 µs where the rest read 170 µs, since the C library had given the
output's pages back to the system in between; after two it read what the rest did (measured on a CPU).
"""
_LEAD_IN_NOTE = (
    "each pass starts with {} untimed, since the pass before left another implementation's data in the caches"
)


def time_together(
    calls: Mapping[str, Call],
    device: Device,
    *,
    timer: Timer,
    options: TimingOptions | None = None,
    after_pass: AfterPass | None = None,
) -> dict[str, Timing]:
    """Time ``calls`` under the same conditions, interleaved in blocks of passes A B C C B A.

    Where turns are handed out (:mod:`kernelmark.timing.turn`), all of it is one turn, and the notes say what was held.

    Args:
        calls: What to time, by name; the order is the order in the first half of a block.
        device: Where the calls run.
        timer: The instrument; it is opened here and is closed when this returns or raises.
        options: Budget, cache state and copy policy; the defaults of ``TimingOptions`` without it.
        after_pass: Called after each pass with the name, the pass's record and its last call's result.

    Raises:
        UsageError: there is nothing to time.
        TimingError: the instrument cannot vouch for its readings.
        Exception: whatever a call, a reset or ``after_pass`` raises, unchanged.
    """
    if not calls:
        raise UsageError("there is nothing to time: give at least one call")
    options = options or TimingOptions()
    with turn_to_time() as held, opened(timer, device):
        flush = device.flusher() if options.cache is Cache.COLD else None
        rounds = {name: Round(call, reset_then_flush(call.reset, flush)) for name, call in calls.items()}
        loop = Passes(device, timer, after_pass, options.count_copies)
        empty_ns = _measure_empty(timer, reset_then_flush(None, flush), _EMPTY_ROUNDS[options.cache])
        costs = {name: _calibrate(loop, each) for name, each in rounds.items()}
        counts = shared_counts(costs, options.budget)
        workers = {}
        for name, each in rounds.items():
            device.settle()
            loop.warm_up(each, counts[name].warmup)
            # Warm, a call finds its own workers as the call before left them, and no others.
            workers[name] = device.working() if options.cache is Cache.WARM else frozenset[str]()
        passes: dict[str, list[tuple[PassRecord, Samples]]] = {name: [] for name in calls}
        for slot in schedule(tuple(calls), min(each.blocks for each in counts.values())):
            count = counts[slot.name].per_pass
            lead_in = _lead_in(options, count)
            each = rounds[slot.name]
            made = loop.one_pass(each, slot, count, lead_in=lead_in, familiar=workers[slot.name])
            passes[slot.name].append(made)
        verify_references(timer)
        own_notes = {name: timer.notes_on(call) for name, call in calls.items()}
    return {
        name: build_timing(
            passes[name],
            Conditions(
                timer=timer.name,
                tells_gap=timer.tells_gap,
                cache=options.cache,
                warmup_count=counts[name].warmup,
                calibration_ns=costs[name].estimate_ns,
                instrument_empty_ns=empty_ns,
                notes=(
                    *timer.notes,
                    *own_notes[name],
                    *counts[name].notes,
                    *_lead_in_notes(options, counts[name].per_pass),
                    *([held] if held else []),
                ),
            ),
        )
        for name in calls
    }


def _measure_empty(timer: Timer, prepare: Callable[[], object], rounds: int) -> float | None:
    """Return what the timer reads for a call that does nothing, prepared like the others."""
    if not timer.reads_empty:
        return None
    with collection_off():
        samples = timer.sample(Call(do_nothing), prepare, rounds)
    return median(samples.latency_ns)


def _calibrate(loop: Passes, each: Round) -> Cost:
    """Estimate what a round costs, after one round that compiles, allocates and loads what it needs."""
    each.run()
    loop.device.synchronize()
    clock, prepare_ns = loop.timer.clock, []
    for _ in range(_PREPARE_ROUNDS):
        start = clock()
        each.prepare()
        loop.device.synchronize()
        prepare_ns.append(clock() - start)
    with collection_off():
        samples = loop.sample(each, _CALIBRATION_ROUNDS)
    loop.timer.take_result()
    return Cost(estimate_ns=median(samples.latency_ns), prepare_ns=median(prepare_ns))


def _lead_in(options: TimingOptions, per_pass: int) -> int:
    """Say how many untimed rounds a pass starts with.

    A cold pass has none: the flush before its first sample evicts what the implementation before it left, no
    sample of a pass was seen to differ by its place, and each lead-in would cost a flush.
    """
    return min(_LEAD_IN_ROUNDS, per_pass) if options.cache is Cache.WARM else 0


def _lead_in_notes(options: TimingOptions, per_pass: int) -> tuple[str, ...]:
    count = _lead_in(options, per_pass)
    if not count:
        return ()
    return (_LEAD_IN_NOTE.format("1 round" if count == 1 else f"{count} rounds"),)
