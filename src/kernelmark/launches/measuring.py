"""Runs a checked plan: build, time in rounds, and put it into the result; on one rank or on several."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from kernelmark.device import Device, measure_probe, open_device
from kernelmark.errors import TimingError
from kernelmark.launches.building import Built, build_references, report_baseline_error, share_errors
from kernelmark.launches.context import DistributedBenchContext
from kernelmark.launches.options import LaunchPlan
from kernelmark.launches.ranks import Ranks, slowest
from kernelmark.launches.result import Measured, RankReadings, Setting, make_result, what_was_kept
from kernelmark.launches.timers import Choice, choose_timer, open_chosen
from kernelmark.records import PassRecord
from kernelmark.timing import Call, FixedCounts, Timer, TimingOptions, Turns, time_together
from kernelmark.units import NS_PER_US, format_time

__all__ = ["DISTRIBUTED_COUNTS", "measure_plan", "open_launch_device"]

DISTRIBUTED_COUNTS = FixedCounts(warmup=5, repeat=30)
DISTRIBUTED_FLUSH_BYTES = 8_000_000_000
"""DeepGEMM's: far more than any cache, and long enough for every rank to have queued its launch behind it."""


def open_launch_device(context: DistributedBenchContext | None) -> Device:
    """Open the device that launches go to: the context's or its stream's, else the one torch has current."""
    import torch

    name = None
    if context is not None:
        name = context.device or str(getattr(context.stream, "device", "") or "") or None
    if name is None and torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator()
        name = f"{kind.type}:{torch.accelerator.current_device_index()}" if kind else None
    return open_device(name or "cpu")


def measure_plan(plan: LaunchPlan, device: Device, *, timer: Timer | None = None) -> dict[str, Any]:
    """Build the references, time everything, and give the result.

    Args:
        plan: What was asked for.
        device: Where the launches go.
        timer: An instrument in place of the one that the plan's timer names; for tests.
    """
    choice = choose_timer(plan.options.asked_timer, device, distributed=plan.distributed is not None)
    instrument = timer or open_chosen(choice.timer, device)
    if plan.distributed is None:
        return _measure_here(plan, device, choice, instrument)
    with _on_stream(plan.distributed, device):
        return _measure_together(plan, plan.distributed, device, choice, instrument)


def _measure_here(plan: LaunchPlan, device: Device, choice: Choice, timer: Timer) -> dict[str, Any]:
    built = _reported(build_references(plan.references))
    device.synchronize()
    probe = measure_probe(device)
    counts = plan.options.counts(choice.timer)
    turns = Turns(counts, rounds=plan.options.rounds, cooldown_s=plan.options.cooldown_s)
    options = TimingOptions(count_copies=True, turns=turns)  # a launch is all that it does
    timed = time_together(_calls(plan, built), device, timer=timer, options=options)
    measured = {
        name: Measured(
            each,
            samples_ns=tuple(getattr(record, choice.timer.reads) for record in each.passes),
            statistic=fmean,
        )
        for name, each in timed.items()
    }
    setting = Setting(
        plan,
        choice,
        device.describe(),
        probe,
        statistic="mean of the samples of a round",
        instrument=timer.name,
    )
    return make_result(setting, measured, built.errors)


def _measure_together(
    plan: LaunchPlan, context: DistributedBenchContext, device: Device, choice: Choice, timer: Timer
) -> dict[str, Any]:
    ranks = Ranks(context)
    ranks.agree("what to time", _description(plan, choice))
    built = _reported(share_errors(build_references(plan.references), ranks))
    device.synchronize()
    flush = _large_flusher(device)
    probe = measure_probe(device, flush=flush)
    sleep, cycles = _gpu_sleep(device)
    readings = _Exchange(ranks, tells_gap=timer.tells_gap)
    turns = Turns(
        DISTRIBUTED_COUNTS,
        rounds=plan.options.rounds,
        cooldown_s=plan.options.cooldown_s,
        before=_Before(flush, sleep, context.barrier),
    )
    options = TimingOptions(count_copies=True, turns=turns)
    with _keeping(readings):
        timed = time_together(_calls(plan, built), device, timer=timer, options=options, after_pass=readings)
    measured = {
        name: Measured(
            each,
            samples_ns=tuple(slowest(by_sample) for by_sample in readings.by_sample[name]),
            statistic=median,
            ranks=readings.of(name),
        )
        for name, each in timed.items()
    }
    setting = Setting(
        plan,
        choice,
        device.describe(),
        probe,
        statistic="median of the samples of a round, each that of its slowest rank",
        instrument=timer.name,
        gpu_sleep_cycles=cycles,
    )
    result = make_result(setting, measured, built.errors)
    ranks.values(0.0)  # a rank that failed above says so here, and no rank leaves after the others have gone
    return result


@dataclass(frozen=True, slots=True)
class _Before:
    """What precedes each launch of each rank, warm-ups too: flush, sleep, meet, prepare."""

    flush: Callable[[], object]
    sleep: Callable[[], object] | None
    barrier: Callable[[], object]

    def __call__(self, reset: Callable[[], object] | None) -> Callable[[], object]:
        steps = tuple(step for step in (self.flush, self.sleep, self.barrier, reset) if step is not None)

        def prepare() -> None:
            for step in steps:
                step()

        return prepare


@dataclass(slots=True)
class _Exchange:
    """After each pass, brings every rank's samples together."""

    ranks: Ranks
    tells_gap: bool
    by_sample: dict[str, list[tuple[tuple[float, ...], ...]]] = field(default_factory=dict)
    gaps: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)

    def of(self, name: str) -> RankReadings:
        """Give what there is of one implementation."""
        return RankReadings(tuple(self.by_sample[name]), tuple(self.gaps[name]))

    def __call__(self, name: str, record: PassRecord, result: object) -> None:
        for index, span in enumerate(record.latency_ns):
            if not (math.isfinite(span) and span > 0):
                raise TimingError(
                    f"launch {index + 1} of {name!r} on rank {self.ranks.rank} read {span!r} ns, which is no time"
                )
        together = tuple(self.ranks.values(span) for span in record.latency_ns)
        gaps = self.gaps.setdefault(name, [])
        self.by_sample.setdefault(name, []).append(together)
        if self.tells_gap:
            pairs = zip(record.latency_ns, record.device_busy_ns, strict=True)
            gaps.append(self.ranks.values(max(0.0, median(span - busy for span, busy in pairs))))


@contextmanager
def _keeping(readings: _Exchange) -> Iterator[None]:
    """Tell with an error what all ranks had measured before it."""
    try:
        yield
    except Exception as error:
        kept = what_was_kept({name: readings.of(name) for name in readings.by_sample})
        if kept:
            medians = ", ".join(f"{name} {format_time(us * NS_PER_US)}" for name, us in kept["impls"].items())
            error.add_note(f"measured by all ranks before: {medians}")
        error.measured = kept  # type: ignore[attr-defined] - what a launch raised may become a DistributedError
        raise


def _calls(plan: LaunchPlan, built: Built) -> dict[str, Call]:
    launches = {**plan.funcs, **built.launches}
    return {name: Call(launch, (), plan.prepare.get(name)) for name, launch in launches.items()}


def _reported(built: Built) -> Built:
    for name, message in built.errors.items():
        report_baseline_error(name, message)
    return built


def _description(plan: LaunchPlan, choice: Choice) -> str:
    return json.dumps(
        {
            "funcs": list(plan.funcs),
            "references": list(plan.references),
            "prepare": sorted(plan.prepare),
            "timer": choice.timer.name,
            "rounds": plan.options.rounds,
            "world_size": plan.distributed.world_size if plan.distributed else 1,
        }
    )


def _large_flusher(device: Device) -> Any:
    if device.kind != "cuda":
        return device.flusher()
    from kernelmark.device.eviction import ReadFlusher

    return ReadFlusher(device.torch_name, DISTRIBUTED_FLUSH_BYTES)


def _gpu_sleep(device: Device) -> tuple[Callable[[], object] | None, int]:
    if device.kind != "cuda":
        return None, 0
    from kernelmark.timing.timers.hiding import MEETING_CYCLES, queue_sleep  # loads torch, as the device has

    return lambda: queue_sleep(MEETING_CYCLES), MEETING_CYCLES


def _on_stream(context: DistributedBenchContext, device: Device) -> AbstractContextManager[Any]:
    """Make the context's stream the current one, so that what precedes a launch is ordered before it.

    A stream that torch does not know cannot be made current; its device can, and the sleep goes to the current one.
    """
    if device.kind != "cuda":
        return nullcontext()
    import torch

    if isinstance(context.stream, torch.cuda.Stream):
        return torch.cuda.stream(context.stream)
    return torch.cuda.device(device.torch_name)
