"""The one loop that takes times: calibrate, warm up, then blocks of passes, all implementations together.

Every round, in every phase, is ``reset → flush → run(*args)``. The loop owns that order, the counts and what
happens around a pass (garbage collection off, telemetry, the result handed on). What lies between the two
ends of a reading belongs to the timer; what the numbers mean belongs to nobody here.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from kernelmark.device import Device
from kernelmark.errors import TimingError, UsageError
from kernelmark.records import Cache, PassRecord, Timing
from kernelmark.timing.budget import Cost, shared_counts
from kernelmark.timing.options import TimingOptions
from kernelmark.timing.reading import Conditions, build_timing
from kernelmark.timing.references import capture, verify
from kernelmark.timing.schedule import Slot, schedule
from kernelmark.timing.timer import Call, Samples, Timer

__all__ = ["AfterPass", "time_together"]

AfterPass = Callable[[str, PassRecord, object], object]
"""Called after each pass, outside all timing: name, record, and what the pass's last call returned."""

_gc_disable, _gc_enable, _gc_isenabled = gc.disable, gc.enable, gc.isenabled
_REFERENCES = capture(gc, "disable", "enable", "isenabled")

_CALIBRATION_ROUNDS = 5
_PREPARE_ROUNDS = 3
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


@dataclass(frozen=True, slots=True)
class _Round:
    """One implementation, ready to run: ``prepare`` is its reset, then the flush."""

    call: Call
    prepare: Callable[[], object]

    def run(self) -> None:
        """Run one round untimed, and drop what it returns."""
        self.prepare()
        self.call.run(*self.call.args)


def time_together(
    calls: Mapping[str, Call],
    device: Device,
    *,
    timer: Timer,
    options: TimingOptions | None = None,
    after_pass: AfterPass | None = None,
) -> dict[str, Timing]:
    """Time ``calls`` under the same conditions, interleaved in blocks of passes A B C C B A.

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
    with _opened(timer, device):
        flush = device.flusher() if options.cache is Cache.COLD else None
        rounds = {name: _Round(call, _prepare(call.reset, flush)) for name, call in calls.items()}
        loop = _Loop(device, timer, options, after_pass)
        empty_ns = loop.measure_empty(_prepare(None, flush))
        costs = {name: loop.calibrate(each) for name, each in rounds.items()}
        counts = shared_counts(costs, options.budget)
        for name, each in rounds.items():
            loop.warm_up(each, counts[name].warmup)
        passes: dict[str, list[tuple[PassRecord, Samples]]] = {name: [] for name in calls}
        for slot in schedule(tuple(calls), min(each.blocks for each in counts.values())):
            passes[slot.name].append(loop.one_pass(rounds[slot.name], slot, counts[slot.name].per_pass))
        verify(_REFERENCES)
        timer.verify_own_references()
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
                notes=(*timer.notes, *counts[name].notes, *_lead_in_notes(options, counts[name].per_pass)),
            ),
        )
        for name in calls
    }


@dataclass(frozen=True, slots=True)
class _Loop:
    """The phases, over what they all share."""

    device: Device
    timer: Timer
    options: TimingOptions
    after_pass: AfterPass | None

    def measure_empty(self, prepare: Callable[[], object]) -> float | None:
        """Return what the timer reads for a call that does nothing, prepared like the others."""
        if not self.timer.reads_empty:
            return None
        with _collection_off():
            samples = self.timer.sample(Call(_nothing), prepare, _EMPTY_ROUNDS[self.options.cache])
        return median(samples.latency_ns)

    def calibrate(self, each: _Round) -> Cost:
        """Estimate what a round costs, after one round that compiles, allocates and loads what it needs."""
        each.run()
        self.device.synchronize()
        clock, prepare_ns = self.timer.clock, []
        for _ in range(_PREPARE_ROUNDS):
            start = clock()
            each.prepare()
            self.device.synchronize()
            prepare_ns.append(clock() - start)
        with _collection_off():
            samples = self._sample(each, _CALIBRATION_ROUNDS)
        self.timer.take_result()
        return Cost(estimate_ns=median(samples.latency_ns), prepare_ns=median(prepare_ns))

    def warm_up(self, each: _Round, count: int) -> None:
        """Run ``count`` rounds untimed."""
        for _ in range(count):
            each.run()
        self.device.synchronize()

    def one_pass(self, each: _Round, slot: Slot, count: int) -> tuple[PassRecord, Samples]:
        """Run one pass.

        A cold pass has no lead-in: the flush before its first sample evicts what the implementation before
        it left, no sample of a pass was seen to differ by its place, and each lead-in would cost a flush.
        """
        before = self.device.telemetry()
        with _collection_off():
            if self.options.cache is Cache.WARM:
                self.warm_up(each, _lead_in(count))
            samples = self._sample(each, count)
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
            before=before,
            after=self.device.telemetry(),
        )
        if self.after_pass is None:
            self.timer.take_result()
        else:  # no name here may hold the result: it must be gone before the next pass begins
            self.after_pass(slot.name, record, self.timer.take_result())
        return record, samples

    def _sample(self, each: _Round, count: int) -> Samples:
        samples = self.timer.sample(each.call, each.prepare, count, count_copies=self.options.count_copies)
        if len(samples.latency_ns) != count:
            raise TimingError(
                f"the {self.timer.name} timer gave {len(samples.latency_ns)} readings for {count} calls;"
                " none of them can be told from the others, so no time is given"
            )
        return samples


@contextmanager
def _opened(timer: Timer, device: Device) -> Iterator[None]:
    """Hold ``timer`` open; an error that is under way stays the error, whatever closing does."""
    try:
        timer.open(device)
        yield
    except BaseException as first:
        try:
            timer.close()
        except Exception as second:  # noqa: BLE001 - told with the first error, which says more
            first.add_note(f"closing the {timer.name} timer failed too: {second!r}")
        raise
    else:
        timer.close()
    finally:
        timer.take_result()


@contextmanager
def _collection_off() -> Iterator[None]:
    """Keep the garbage collector out of a pass, and leave it as it was, also after an error."""
    was_on = _gc_isenabled()
    _gc_disable()
    try:
        yield
    finally:
        if was_on:
            _gc_enable()


def _lead_in(per_pass: int) -> int:
    return min(_LEAD_IN_ROUNDS, per_pass)


def _lead_in_notes(options: TimingOptions, per_pass: int) -> tuple[str, ...]:
    if options.cache is not Cache.WARM:
        return ()
    count = _lead_in(per_pass)
    return (_LEAD_IN_NOTE.format("1 round" if count == 1 else f"{count} rounds"),)


def _prepare(reset: Callable[[], object] | None, flush: Callable[[], object] | None) -> Callable[[], object]:
    """Return what runs before each call: the reset, then the flush, which evicts what the reset wrote."""
    if reset is None or flush is None:
        return reset or flush or _nothing

    def reset_then_flush() -> None:
        reset()
        flush()

    return reset_then_flush


def _nothing() -> None:
    """Do nothing; the call of which an instrument reads only itself."""
