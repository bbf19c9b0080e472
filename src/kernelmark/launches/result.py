"""The dict that ``bench`` returns, which is one rendering of its rows, and the comparison of two of them. Pure.

Times become microseconds here and nowhere else. All values are ones that JSON knows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Any

from kernelmark.device import probe_verdict
from kernelmark.errors import RecordError, UsageError
from kernelmark.harness.provenance import now
from kernelmark.launches.options import LaunchPlan, LaunchTimer
from kernelmark.launches.ranks import slowest
from kernelmark.records import (
    Cache,
    Check,
    PassRecord,
    ProbeReading,
    Row,
    Telemetry,
    Unlike,
    refuse_unlike,
)
from kernelmark.report.notes import note_text
from kernelmark.stats import t_quantile
from kernelmark.timing import TIMERS, BudgetedCounts
from kernelmark.units import NS_PER_US

if TYPE_CHECKING:
    from kernelmark.harness import Comparison, Session

__all__ = ["LIKENESS", "PROTOCOL_VERSION", "RankReadings", "compare_results", "make_result", "what_was_kept"]

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


def make_result(
    plan: LaunchPlan,
    choice: tuple[LaunchTimer, str],
    session: Session,
    found: Comparison,
    *,
    ranks: Mapping[str, RankReadings] | None = None,
    gpu_sleep_cycles: int = 0,
) -> dict[str, Any]:
    """Put everything into one dict.

    Args:
        plan: What was asked for.
        choice: The timer, and why it is this one.
        session: The run.
        found: Its rows.
        ranks: Every rank's readings by implementation; ``None`` where there is one rank alone.
        gpu_sleep_cycles: How long the device slept before each launch.
    """
    passes = {row.implementation: row.timing.passes for row in found if row.timing}
    reads = choice[0].reads if ranks is None else "latency_ns"
    statistic = fmean if ranks is None else median
    samples = {name: [_us(getattr(each, reads)) for each in records] for name, records in passes.items()}
    rounds = {name: [statistic(each) for each in found] for name, found in samples.items()}
    result: dict[str, Any] = {
        "impls": {name: fmean(values) for name, values in rounds.items()},
        "round_samples": rounds,
        "errors": {
            row.implementation: note_text(row.note) for row in found if row.check is Check.UNAVAILABLE
        },
        "timer": choice[0].name,
        "benchmark_protocol": _protocol(plan, choice, session, passes, ranks is not None, gpu_sleep_cycles),
        "checks": {
            row.implementation: {"check": row.check.value, "note": note_text(row.note)} for row in found
        },
        "ratios": {row.implementation: _ratio_of(row) for row in found if row.ratio},
        "samples": samples,
        "clocks": {name: [_clock(each) for each in records] for name, records in passes.items()},
        "notes": {row.implementation: list(map(note_text, row.timing.notes)) for row in found if row.timing},
    }
    if ranks is not None:
        result["ranks"] = {name: _ranks(each) for name, each in ranks.items()}
    return result


def _ratio_of(row: Row) -> dict[str, Any]:
    assert row.ratio is not None  # asked for those that have one
    kept = ("value", "low", "high", "confidence", "blocks", "verdict")
    return {key: getattr(row.ratio, key) for key in kept}


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


def _protocol(
    plan: LaunchPlan,
    choice: tuple[LaunchTimer, str],
    session: Session,
    passes: Mapping[str, Sequence[PassRecord]],
    distributed: bool,
    gpu_sleep_cycles: int,
) -> dict[str, Any]:
    timer, options, header = choice[0], plan.options, session.start()
    assert header.probe is not None  # a run that times has read it, or is refused
    instrument = session.timer_name
    protocol: dict[str, Any] = {
        "version": PROTOCOL_VERSION,
        "made": now(),
        "timer": timer.name,
        "timer_chosen": choice[1],
        "instrument": instrument,
        "instrument_reads": next((each.reads for each in TIMERS if each.name == instrument), instrument),
        "reading": "latency" if distributed else timer.reads.removesuffix("_ns"),
        "statistic": "median of the samples of a round, each that of its slowest rank"
        if distributed
        else "mean of the samples of a round",
        "rounds": options.rounds,
        "cooldown_s": float(options.cooldown_s),
        "order": list(passes),
        "ours": list(plan.funcs),
        "references": list(plan.references),
        "prepared": sorted(plan.prepare),
        "cache": Cache.COLD.value,
        "flush_bytes": header.probe.flush_bytes,
        "probe": _probe(header.probe),
        "counts": {name: _counts(records) for name, records in passes.items()},
        "device": header.device.model_dump(mode="json"),
        "environment": header.environment.model_dump(mode="json"),
    }
    if plan.distributed is None:
        return protocol | _budgets(options.counts(timer), options.ignored(timer))
    return protocol | {
        "world_size": plan.distributed.world_size,
        "rank": plan.distributed.rank,
        "gpu_sleep_cycles": gpu_sleep_cycles,
        "gpu_sleep": "before each launch"
        if gpu_sleep_cycles
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


def _counts(passes: Sequence[PassRecord]) -> dict[str, list[Any]]:
    return {
        "warmup": [record.lead_in or 0 for record in passes],
        "samples": [len(record.latency_ns) for record in passes],
        "estimate_us": [
            None if record.estimate_ns is None else record.estimate_ns / NS_PER_US for record in passes
        ],
    }


def _clock(record: PassRecord) -> dict[str, Any]:
    return {"before": _told(record.before), "after": _told(record.after)}


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


# --- two results --------------------------------------------------------------------------------------

LIKENESS: tuple[str, ...] = (
    "timer",
    "benchmark_protocol.version",
    "benchmark_protocol.instrument",
    "benchmark_protocol.reading",
    "benchmark_protocol.statistic",
    "benchmark_protocol.budgets_ms",
    "benchmark_protocol.cooldown_s",
    "benchmark_protocol.cache",
    "benchmark_protocol.flush_bytes",
    "benchmark_protocol.gpu_sleep_cycles",
    "benchmark_protocol.world_size",
    "benchmark_protocol.device.kind",
    "benchmark_protocol.device.name",
    "benchmark_protocol.device.threads",
    "benchmark_protocol.device.driver",
    "benchmark_protocol.environment.kernelmark",
    "benchmark_protocol.environment.python",
    "benchmark_protocol.environment.libraries.torch",
    "benchmark_protocol.environment.libraries.triton",
    "benchmark_protocol.environment.hostname_hash",
)
"""What two results must share to be comparable. The rounds are not among it: more of them are only surer."""

_KEYS: Mapping[str, Unlike] = dict.fromkeys(LIKENESS, Unlike.NOT_COMPARED)


def compare_results(
    before: Mapping[str, Any], after: Mapping[str, Any], *, ignore: Iterable[str] = ()
) -> dict[str, dict[str, Any]]:
    """Compare two results of ``bench`` for the implementations that both have.

    ``ratio`` is ``before / after``: above 1 means that ``after`` is faster. ``low`` to ``high`` is Welch's 95 %
    interval over the rounds of both; with one round there is none. Rounds of two runs do not pair, and what differs
    between the runs alone (clocks, memory addresses, neighbours) is in no interval over rounds. So ``verdict`` is
    ``undecided`` without an interval; time both in one ``bench`` with ``reference=`` to know.

    Args:
        before: A result, as returned or as read back from JSON.
        after: Another one.
        ignore: Keys of ``LIKENESS`` that may differ, such as the library whose change is the question.

    Raises:
        UsageError: ``ignore`` names something that is not in ``LIKENESS``.
        RecordError: the results differ in what must be equal, or share no implementation.
    """
    skipped = set(ignore)
    if unknown := skipped - set(LIKENESS):
        raise UsageError(f"ignore={sorted(unknown)!r}: give keys of kernelmark.launches.LIKENESS")
    refuse_unlike(before, after, ignore=skipped, keys=_KEYS)
    shared = [name for name in before["impls"] if name in after["impls"]]
    if not shared:
        raise RecordError(
            f"these results share no implementation: {', '.join(before['impls'])} and {', '.join(after['impls'])}"
        )
    return {name: _compared(before, after, name) for name in shared}


def _compared(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> dict[str, Any]:
    old, new = before["impls"][name], after["impls"][name]
    low, high = _interval(before["round_samples"][name], after["round_samples"][name])
    verdict = "undecided"
    if low is not None and high is not None:
        verdict = "faster" if low > 1 else "slower" if high < 1 else "undecided"
    return {"before": old, "after": new, "ratio": old / new, "low": low, "high": high, "verdict": verdict}


def _interval(before: Sequence[float], after: Sequence[float]) -> tuple[float | None, float | None]:
    """Give Welch's interval of the ratio of two means of logarithms; nothing where either has one value."""
    if min(len(before), len(after)) < 2:
        return None, None
    logs = [[math.log(value) for value in each] for each in (before, after)]
    shares = [stdev(each) ** 2 / len(each) for each in logs]
    centre, variance = fmean(logs[0]) - fmean(logs[1]), sum(shares)
    if not variance:
        return math.exp(centre), math.exp(centre)
    freedom = variance**2 / sum(s**2 / (len(each) - 1) for s, each in zip(shares, logs, strict=True))
    reach = t_quantile(0.975, max(1, math.floor(freedom))) * math.sqrt(variance)
    return math.exp(centre - reach), math.exp(centre + reach)
