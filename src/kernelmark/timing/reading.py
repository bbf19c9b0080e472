"""Makes the stored record of one implementation from its passes. Pure.

It pools what the passes hold and computes no ratio: it never sees another implementation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median, median_low

from kernelmark.records import Cache, KernelShare, Note, PassRecord, Timing
from kernelmark.stats import drift, summarise
from kernelmark.timing.protocol import CALIBRATION_ROUNDS, FixedCounts, TimingOptions, Turns
from kernelmark.timing.timer import Samples
from kernelmark.units import format_time

__all__ = [
    "COUNT_WITHOUT_ESTIMATE",
    "Conditions",
    "block_samples",
    "build_timing",
    "other_clocks",
    "protocol_notes",
]

CLOCK_TOLERANCE = 0.005
"""How far the clock of a pass may be from that of its siblings. A device steps by more (15 of 1980 MHz on an H200),
and what is bound by arithmetic takes as much longer: five readings of one product spread by 0.68 %."""

COUNT_WITHOUT_ESTIMATE = 1000
"""How often a call runs whose estimated calls took no time on the clock; as in Triton's Proton timers."""
FEW_SAMPLES = 5
"""With fewer samples in a turn its mean is at the mercy of one of them, and the row says so."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What held for all passes of one implementation."""

    timer: str
    tells_gap: bool
    cache: Cache
    warmup_count: int
    calibration_ns: float | None
    instrument_empty_ns: float | None
    repeated_passes: int | None = None
    compares_clocks: bool = False
    """Whether passes under another clock than their siblings are told."""
    notes: tuple[str, ...] = ()


def build_timing(passes: Sequence[tuple[PassRecord, Samples]], conditions: Conditions) -> Timing:
    """Pool ``passes``, which are in the order of the protocol.

    The drift compares the second half of the passes with the first.
    """
    records = tuple(record for record, _ in passes)
    busy = _pool(records, "device_busy_ns")
    latency = _pool(records, "latency_ns")
    middle = len(records) // 2
    kernels = _pool(records, "n_kernels")
    uncounted = _pool(records, "uncounted_copy_ns")
    return Timing(
        timer=conditions.timer,
        cache=conditions.cache,
        device_busy=summarise(busy),
        latency=summarise(latency),
        gap_ns=_gap(latency, busy) if conditions.tells_gap else None,
        n_kernels=max(kernels, default=None),
        n_kernels_varied=len(set(kernels)) > 1,
        n_copies=max(_pool(records, "n_copies"), default=None),
        n_memsets=max(_pool(records, "n_memsets"), default=None),
        uncounted_copy_ns=median(uncounted) if uncounted else None,
        kernels=_merge_kernels(passes),
        drift=drift(_pool(records[:middle], "device_busy_ns"), _pool(records[middle:], "device_busy_ns")),
        warmup_count=conditions.warmup_count,
        calibration_ns=conditions.calibration_ns,
        instrument_empty_ns=conditions.instrument_empty_ns,
        retries=sum(record.retries for record in records),
        repeated_passes=conditions.repeated_passes,
        passes=records,
        notes=tuple(map(Note.free, (*conditions.notes, *_clock_notes(records, conditions)))),
    )


def other_clocks(records: Sequence[PassRecord]) -> list[PassRecord]:
    """Give the passes after which the device was at another clock than after most of their siblings.

    The siblings are the passes of the same implementation: what a call draws decides the clock under a power cap.
    """
    told = [(record, clock) for record in records if (clock := _clock_mhz(record))]
    if not told:
        return []
    usual = median_low(clock for _, clock in told)
    return [record for record, clock in told if abs(clock - usual) > CLOCK_TOLERANCE * usual]


def _clock_mhz(record: PassRecord) -> float | None:
    return record.after.clock_mhz if record.after else None


def _clock_notes(records: Sequence[PassRecord], conditions: Conditions) -> tuple[str, ...]:
    if not conditions.compares_clocks:
        return ()
    notes, odd = [], other_clocks(records)
    if conditions.repeated_passes:
        notes.append(
            f"{conditions.repeated_passes} passes were run again, since one of their block was more than"
            f" {100 * CLOCK_TOLERANCE:g} % off the clock of its siblings"
        )
    if odd:
        usual = median_low(clock for record in records if (clock := _clock_mhz(record)))
        clocks = sorted(_clock_mhz(record) or 0 for record in odd)
        notes.append(
            f"{len(odd)} of {len(records)} passes ran at {clocks[0]:.0f} to {clocks[-1]:.0f} MHz, the others at"
            f" {usual:.0f} MHz: more than the {100 * CLOCK_TOLERANCE:g} % that a clock may be off"
        )
    return tuple(notes)


def protocol_notes(
    records: Sequence[PassRecord], options: TimingOptions, *, planned: int, ended_early: str
) -> tuple[str, ...]:
    """Say what a reader must know of how the passes of one implementation were taken.

    Args:
        records: Its passes.
        options: The protocol.
        planned: The blocks, or rounds, that were planned.
        ended_early: Why there are fewer; blank where there are as many.
    """
    notes = _turn_notes(records, options.turns) if options.turns else _lead_in_notes(records)
    if ended_early:
        done = len({record.block for record in records})
        notes.append(f"{done} of {planned} blocks: {ended_early}")
    return tuple(notes)


def _lead_in_notes(records: Sequence[PassRecord]) -> list[str]:
    most = max(record.lead_in or 0 for record in records)
    if not most:
        return []
    rounds = "1 round" if most == 1 else f"{most} rounds"
    return [
        f"each pass starts with {rounds} untimed, since the pass before left another implementation's data in the"
        " caches"
    ]


def _turn_notes(records: Sequence[PassRecord], turns: Turns) -> list[str]:
    if isinstance(turns.counts, FixedCounts):
        return []
    notes = []
    unclocked = sum(not record.estimate_ns for record in records)
    if unclocked:
        notes.append(
            f"{COUNT_WITHOUT_ESTIMATE} calls in {unclocked} of {len(records)} rounds: the clock did not move during"
            f" {CALIBRATION_ROUNDS} calls, so no budget could be divided by their time"
        )
    fewest = min(records, key=lambda record: len(record.latency_ns))
    if len(fewest.latency_ns) < FEW_SAMPLES and fewest.estimate_ns:
        notes.append(
            f"only {len(fewest.latency_ns)} samples in a round, since one call takes"
            f" {format_time(fewest.estimate_ns, 3)} with what precedes it; a larger repeat budget gives more"
        )
    return notes


def block_samples(timing: Timing) -> tuple[tuple[int | float, ...], ...]:
    """Return the busy times by block, the two passes of a block together, as ``paired_ratio`` takes them."""
    blocks: defaultdict[int, list[int | float]] = defaultdict(list)
    for each in timing.passes:
        blocks[each.block].extend(each.device_busy_ns)
    return tuple(tuple(blocks[block]) for block in sorted(blocks))


def _pool(records: Sequence[PassRecord], column: str) -> list:
    return list(chain.from_iterable(getattr(record, column) or () for record in records))


def _gap(latency: Sequence[int | float], busy: Sequence[int | float]) -> float:
    return max(0, median(whole - part for whole, part in zip(latency, busy, strict=True)))


def _merge_kernels(passes: Sequence[tuple[PassRecord, Samples]]) -> tuple[KernelShare, ...]:
    """Weigh what each pass says by its number of samples (runs per call) and its busy time (share)."""
    calls = sum(len(samples.latency_ns) for _, samples in passes)
    busy = sum(sum(samples.device_busy_ns) for _, samples in passes)
    first: dict[tuple[str, str], KernelShare] = {}
    runs: defaultdict[tuple[str, str], float] = defaultdict(float)
    time: defaultdict[tuple[str, str], float] = defaultdict(float)
    for _, samples in passes:
        for each in samples.kernels:
            key = (each.name, each.kind)
            first.setdefault(key, each)
            runs[key] += each.per_call * len(samples.latency_ns)
            time[key] += each.share * sum(samples.device_busy_ns)
    merged = [
        each.model_copy(update={"per_call": runs[key] / calls, "share": time[key] / busy if busy else 0.0})
        for key, each in first.items()
    ]
    return tuple(sorted(merged, key=lambda each: (-each.share, each.name)))
