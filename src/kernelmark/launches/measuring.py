"""Runs a checked plan through the engine, in rounds of turns; on one rank, on several, or in another process.

Builders run first, each once, and may fail without failing the rest. In another process, where the timer cannot follow
a profiler that was used in this one, they run there and not here. Several ranks are never moved: what connects them
belongs to their processes.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from kernelmark.device import Device, Flusher, open_device
from kernelmark.errors import InstrumentConflictError, TimingError, UsageError
from kernelmark.harness import Comparison, Implementation, Session, SessionOptions, Unavailable, run_plan
from kernelmark.harness.functions import declared, own_session, plan_of
from kernelmark.launches.options import Builder, Launch, LaunchPlan, LaunchTimer, choose_timer, shown
from kernelmark.launches.ranks import DistributedBenchContext, Ranks, slowest
from kernelmark.launches.result import RankReadings, make_result, what_was_kept
from kernelmark.records import PassRecord
from kernelmark.timing import FixedCounts, Timer, Turns, open_timer
from kernelmark.timing.elsewhere import find_conflict, in_another_process, note_of, refusal, why_unsendable
from kernelmark.units import NS_PER_US, format_time

__all__ = ["DISTRIBUTED_COUNTS", "conflict_of", "measure_elsewhere", "measure_plan", "open_launch_device"]

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
    context = plan.distributed
    choice = choose_timer(plan.options.asked_timer, device, distributed=context is not None)
    instrument = timer or open_timer(choice[0].name, device)
    turns = Turns(plan.options.counts(choice[0]), plan.options.rounds, plan.options.cooldown_s)
    if context is None:
        built = build_references(plan.references)
        return make_result(plan, choice, *_through_engine(plan, built, device, instrument, turns))
    with _on_stream(context, device):
        ranks = Ranks(context)
        ranks.agree("what to time", _description(plan, choice[0]))
        built = share_errors(build_references(plan.references), ranks)
        device.synchronize()
        sleep, cycles = _gpu_sleep(device)
        flush = _large_flusher(device)
        readings = _Exchange(ranks, tells_gap=instrument.tells_gap)
        turns = replace(
            turns,
            counts=DISTRIBUTED_COUNTS,
            flush=flush,
            before=_Before(flush, sleep, context.barrier),
            exchange=readings,
        )
        with _keeping(readings):
            measured = _through_engine(plan, built, device, instrument, turns)
        result = make_result(plan, choice, *measured, ranks=readings.all(), gpu_sleep_cycles=cycles)
        ranks.values(
            0.0
        )  # a rank that failed above says so here, and no rank leaves after the others have gone
        return result


def _through_engine(
    plan: LaunchPlan, built: Mapping[str, Launch | Unavailable], device: Device, timer: Timer, turns: Turns
) -> tuple[Session, Comparison]:
    """Check and time the launches as one comparison, and give the run with its rows."""
    for name, each in built.items():
        if isinstance(each, Unavailable):
            report_baseline_error(name, each.reason)
    options = SessionOptions(
        device=device.torch_name,
        timer=timer,
        turns=turns,
        out=plan.out,
        ceilings=False,
        other_values=False,  # a launch has captured its inputs
        call_unchecked=False,
    )
    launches = {**plan.funcs, **built}
    entries = {
        name: launch
        if isinstance(launch, Unavailable)
        else Implementation(launch, args=(), reset=plan.prepare.get(name))
        for name, launch in launches.items()
    }
    comparison = plan_of(
        entries,
        declaration=declared(plan.reference, tolerance=plan.tolerance),
        reference=plan.reference,
        label=" and ".join(plan.funcs),
        count_copies=True,  # a launch is all that it does
    )
    with own_session(Session(options, device=device)) as session:
        return session, run_plan(comparison, session)


# --- references ---------------------------------------------------------------------------------------


def build_references(builders: Mapping[str, Builder]) -> dict[str, Launch | Unavailable]:
    """Run each builder once; one that raises leaves the reason."""
    built: dict[str, Launch | Unavailable] = {}
    for name, builder in builders.items():
        try:
            built[name] = _launch_of(builder)
        except Exception as error:  # noqa: BLE001 - a baseline that cannot be built is a result: its error
            built[name] = Unavailable(f"{type(error).__name__}: {error}")
    return built


def share_errors(built: Mapping[str, Launch | Unavailable], ranks: Ranks) -> dict[str, Launch | Unavailable]:
    """Drop on every rank what one of them could not build, so that none waits for a launch that never comes."""
    shared = dict(built)
    for name in sorted(built):
        own = built[name]
        reason = own.reason if isinstance(own, Unavailable) else ""
        if any(ranks.values(bool(reason))):
            told = ranks.texts(reason)
            shared[name] = Unavailable(
                "; ".join(f"rank {who}: {text}" for who, text in enumerate(told) if text)
            )
    return shared


def report_baseline_error(name: str, message: str) -> None:
    """Tell stderr that a baseline is missing, as the runs that collect these lines expect."""
    # the one line that this way in owes to stderr, as its specification has it; the rest is in the result
    sys.stderr.write(f"BASELINE_ERROR: {name}: {message}\n")


def _launch_of(builder: Builder) -> Launch:
    launch = builder()
    if not callable(launch):
        raise UsageError(
            f"the builder returned {shown(launch)}; it must return the launch, a callable without arguments"
        )
    return launch


# --- several ranks ------------------------------------------------------------------------------------


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
    """After each pass, brings every rank's samples together, and keeps those of the slowest."""

    ranks: Ranks
    tells_gap: bool
    by_sample: dict[str, list[tuple[tuple[float, ...], ...]]] = field(default_factory=dict)
    gaps: dict[str, list[tuple[float, ...]]] = field(default_factory=dict)

    def all(self) -> dict[str, RankReadings]:
        """Give what there is, by implementation."""
        return {
            name: RankReadings(tuple(self.by_sample[name]), tuple(self.gaps[name])) for name in self.by_sample
        }

    def __call__(self, name: str, record: PassRecord) -> PassRecord:
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
        longest = slowest(together)
        return record.model_copy(update={"latency_ns": longest, "device_busy_ns": longest})


@contextmanager
def _keeping(readings: _Exchange) -> Iterator[None]:
    """Tell with an error what all ranks had measured before it."""
    try:
        yield
    except Exception as error:
        kept = what_was_kept(readings.all())
        if kept:
            medians = ", ".join(f"{name} {format_time(us * NS_PER_US)}" for name, us in kept["impls"].items())
            error.add_note(f"measured by all ranks before: {medians}")
        error.measured = kept  # type: ignore[attr-defined] - what a launch raised may become a DistributedError
        raise


def _description(plan: LaunchPlan, timer: LaunchTimer) -> str:
    return json.dumps(
        {
            "funcs": list(plan.funcs),
            "references": list(plan.references),
            "prepare": sorted(plan.prepare),
            "timer": timer.name,
            "rounds": plan.options.rounds,
            "world_size": plan.distributed.world_size if plan.distributed else 1,
        }
    )


def _large_flusher(device: Device) -> Flusher:
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


# --- another process ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Request:
    plan: LaunchPlan
    device: str


def conflict_of(plan: LaunchPlan, device: Device) -> InstrumentConflictError | None:
    """Say what keeps the plan's timer from being used in this process, before anything is built or launched."""
    if plan.distributed is not None:
        return None
    timer, _ = choose_timer(plan.options.asked_timer, device, distributed=False)
    return find_conflict(timer.name, device)


def measure_elsewhere(plan: LaunchPlan, device: Device, conflict: InstrumentConflictError) -> dict[str, Any]:
    """Measure ``plan`` in another process; the result's protocol says so and why.

    Raises:
        InstrumentConflictError: something in the plan cannot be sent; the message names it and the profiler that
            came first. Nothing was built or launched.
        Exception: whatever a launch raises there.
    """
    try:
        result = in_another_process(_measure, _Request(plan, device.torch_name), conflict)
    except InstrumentConflictError:
        for name, why in _unsendable(plan):
            raise refusal(conflict, f"{name} cannot be sent: {why}") from conflict
        raise
    result["benchmark_protocol"]["own_process"] = note_of(conflict)
    return result


def _measure(request: _Request) -> dict[str, Any]:
    return measure_plan(request.plan, open_device(request.device))


def _unsendable(plan: LaunchPlan) -> Iterator[tuple[str, str]]:
    given = {
        "funcs": plan.funcs,
        "references": plan.references,
        "prepare": plan.prepare,
        "reference": {"": plan.reference} if plan.reference else {},
    }
    for parameter, callables in given.items():
        for name, value in callables.items():
            if why := why_unsendable(value):
                yield f"{parameter}[{name!r}]", why
