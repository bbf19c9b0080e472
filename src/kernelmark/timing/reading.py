"""Makes the stored record of one implementation from its passes. Pure.

It pools what the passes hold and computes no ratio: it never sees another implementation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

from kernelmark.records import Cache, KernelShare, PassRecord, Timing
from kernelmark.stats import drift, summarise
from kernelmark.timing.timer import Samples

__all__ = ["Conditions", "block_samples", "build_timing"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """What held for all passes of one implementation."""

    timer: str
    tells_gap: bool
    cache: Cache
    warmup_count: int
    calibration_ns: float | None
    instrument_empty_ns: float | None
    notes: tuple[str, ...] = ()


def build_timing(passes: Sequence[tuple[PassRecord, Samples]], conditions: Conditions) -> Timing:
    """Pool ``passes``, which are in the order in which they ran.

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
        passes=records,
        notes=conditions.notes,
    )


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
