"""Makes the dict that ``bench`` returns. Pure: it is given everything, and measures nothing.

Times become microseconds here and nowhere else. All values are ones that JSON knows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from kernelmark.device import probe_verdict
from kernelmark.errors import TimingError
from kernelmark.harness.provenance import environment, now
from kernelmark.launches.options import LaunchPlan
from kernelmark.launches.ranks import slowest
from kernelmark.launches.timers import Choice
from kernelmark.records import Cache, DeviceRecord, ProbeReading, Telemetry, Timing
from kernelmark.report.notes import note_text
from kernelmark.timing import TIMERS, BudgetedCounts
from kernelmark.units import NS_PER_US

__all__ = ["PROTOCOL_VERSION", "Measured", "RankReadings", "Setting", "make_result", "what_was_kept"]

PROTOCOL_VERSION = 2
"""1: the first. 2: with the caches' state and the probe that shows it."""

Ns = int | float


@dataclass(frozen=True, slots=True)
class RankReadings:
    """Every rank's samples of one implementation: round, then sample, then rank; nanoseconds."""

    by_sample: tuple[Sequence[Sequence[Ns]], ...]
    gaps: tuple[Sequence[Ns], ...] = ()
    """Median launch gap of each rank, by round; nothing where the instrument cannot tell it."""

    def medians(self) -> list[float]:
        """Give each rank's median over all its samples."""
        columns = zip(*(sample for each in self.by_sample for sample in each), strict=True)
        return [median(column) for column in columns]

    def times_slowest(self) -> Counter[int]:
        """Count how often each rank was the slowest of a sample."""
        return Counter(max(range(len(s)), key=s.__getitem__) for each in self.by_sample for s in each)


@dataclass(frozen=True, slots=True)
class Measured:
    """One implementation: what was timed, its samples by round, and what makes one number of a round."""

    timed: Timing
    samples_ns: tuple[Sequence[Ns], ...]
    statistic: Callable[[Sequence[Ns]], float]
    ranks: RankReadings | None = None

    def round_values_us(self, name: str) -> list[float]:
        """Give one number for each round.

        Raises:
            TimingError: a number that is no time.
        """
        values = [self.statistic(samples) / NS_PER_US for samples in self.samples_ns]
        for value in values:
            if not (math.isfinite(value) and value > 0):
                raise TimingError(f"{name!r} read {value!r} µs in one round, which is no time; none is given")
        return values


@dataclass(frozen=True, slots=True)
class Setting:
    """What held for the whole run."""

    plan: LaunchPlan
    choice: Choice
    device: DeviceRecord
    probe: ProbeReading
    """A read after what evicts the caches before each launch, and again at once."""
    statistic: str
    instrument: str
    gpu_sleep_cycles: int = 0


def make_result(
    setting: Setting, measured: Mapping[str, Measured], errors: Mapping[str, str]
) -> dict[str, Any]:
    """Put everything into one dict.

    Raises:
        TimingError: a round has no time.
    """
    rounds = {name: each.round_values_us(name) for name, each in measured.items()}
    result: dict[str, Any] = {
        "impls": {name: fmean(values) for name, values in rounds.items()},
        "round_samples": rounds,
        "errors": dict(errors),
        "timer": setting.choice.timer.name,
        "benchmark_protocol": _protocol(setting, measured),
        "samples": {name: [_us(samples) for samples in each.samples_ns] for name, each in measured.items()},
        "clocks": {name: _clocks(each) for name, each in measured.items()},
        "notes": {name: list(map(note_text, each.timed.notes)) for name, each in measured.items()},
    }
    if setting.plan.distributed is not None:
        result["ranks"] = {name: _ranks(each.ranks) for name, each in measured.items() if each.ranks}
    return result


def what_was_kept(by_name: Mapping[str, RankReadings]) -> dict[str, Any]:
    """Give the part of a result that whole rounds of all ranks are enough for; nothing where there is none."""
    samples = {name: [slowest(by_sample) for by_sample in each.by_sample] for name, each in by_name.items()}
    rounds = {name: [median(each) for each in found] for name, found in samples.items()}
    if not rounds:
        return {}
    return {
        "impls": {name: fmean(values) / NS_PER_US for name, values in rounds.items()},
        "round_samples": {name: _us(values) for name, values in rounds.items()},
        "samples": {name: [_us(each) for each in found] for name, found in samples.items()},
        "ranks": {name: _ranks(each) for name, each in by_name.items()},
    }


def _protocol(setting: Setting, measured: Mapping[str, Measured]) -> dict[str, Any]:
    plan, choice, options = setting.plan, setting.choice, setting.plan.options
    protocol: dict[str, Any] = {
        "version": PROTOCOL_VERSION,
        "made": now(),
        "timer": choice.timer.name,
        "timer_chosen": choice.reason,
        "instrument": setting.instrument,
        "instrument_reads": next(
            (each.reads for each in TIMERS if each.name == setting.instrument), setting.instrument
        ),
        "reading": choice.timer.reads.removesuffix("_ns") if plan.distributed is None else "latency",
        "statistic": setting.statistic,
        "rounds": options.rounds,
        "cooldown_s": float(options.cooldown_s),
        "order": list(measured),
        "ours": list(plan.funcs),
        "references": list(plan.references),
        "prepared": sorted(plan.prepare),
        "cache": Cache.COLD.value,
        "flush_bytes": setting.probe.flush_bytes,
        "probe": _probe(setting.probe),
        "counts": {name: _counts(each) for name, each in measured.items()},
        "device": setting.device.model_dump(mode="json"),
        "environment": environment().model_dump(mode="json"),
    }
    if plan.distributed is None:
        return protocol | _budgets(options.counts(choice.timer), options.ignored(choice.timer))
    return protocol | {
        "world_size": plan.distributed.world_size,
        "rank": plan.distributed.rank,
        "gpu_sleep_cycles": setting.gpu_sleep_cycles,
        "gpu_sleep": "before each launch"
        if setting.gpu_sleep_cycles
        else "skipped: this device has no queue in which a launch could wait behind it",
    }


def _probe(probe: ProbeReading) -> dict[str, Any]:
    return {
        "size_bytes": probe.size_bytes,
        "cold_us": probe.cold_ns / NS_PER_US,
        "warm_us": probe.warm_ns / NS_PER_US,
        "flush_us": probe.flush_ns / NS_PER_US,
        "cold_over_warm": probe.ratio if math.isfinite(probe.ratio) else None,
        "doubt": probe_verdict(probe, Cache.COLD),
    }


def _budgets(counts: BudgetedCounts, ignored: Mapping[str, float]) -> dict[str, Any]:
    return {
        "budgets_ms": {"warmup": counts.warmup_ms, "repeat": counts.repeat_ms},
        "budgets_ignored": dict(ignored),
        "flush_in_estimate": counts.flush_in_estimate,
    }


def _counts(each: Measured) -> dict[str, list[Any]]:
    passes = each.timed.passes
    return {
        "warmup": [record.lead_in or 0 for record in passes],
        "samples": [len(record.latency_ns) for record in passes],
        "estimate_us": [
            None if record.estimate_ns is None else record.estimate_ns / NS_PER_US for record in passes
        ],
    }


def _clocks(each: Measured) -> list[dict[str, Any]]:
    return [{"before": _told(p.before), "after": _told(p.after)} for p in each.timed.passes]


def _told(telemetry: Telemetry | None) -> dict[str, Any]:
    """Give what the device said, without what it does not know."""
    return telemetry.model_dump(mode="json", exclude_none=True) if telemetry else {}


def _ranks(ranks: RankReadings) -> dict[str, Any]:
    medians = ranks.medians()
    times = ranks.times_slowest()
    return {
        "samples": [[_us(column) for column in zip(*each, strict=True)] for each in ranks.by_sample],
        "median": _us(medians),
        "slowest_rank": max(range(len(medians)), key=medians.__getitem__),
        "times_slowest": [times[rank] for rank in range(len(medians))],
        "launch_gap": [_us(each) for each in ranks.gaps] or None,
    }


def _us(times_ns: Sequence[Ns]) -> list[float]:
    return [each / NS_PER_US for each in times_ns]
