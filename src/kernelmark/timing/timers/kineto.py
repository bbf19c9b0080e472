"""torch.profiler (Kineto): the span of each call's work on the device, over all streams.

The device is not drained before a call, so that what precedes it (the flush, or a sleep on the GPU) hides what
launching costs the host. The device is drained after it, so that what follows is not read with it.

Reading the trace is pure: its events in, a recording or a refusal out. A kernel belongs to the call during which it
was launched, on the thread that made the call: kernel and launch share a correlation id, and the call's scope says
from when to when the thread was in it.
"""

from __future__ import annotations

import json
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch

from kernelmark.device import Device
from kernelmark.errors import InstrumentConflictError, RecordsLostError, TimingError, UnavailableError
from kernelmark.timing.profilers import Profiler, note_use
from kernelmark.timing.timer import (
    Bracket,
    Call,
    Reference,
    Samples,
    Scopes,
    Timer,
    capture,
    do_nothing,
    run_rounds,
)
from kernelmark.timing.timers.activity import PREPARE_ID, Activity, Recording, attribute, iteration_id

__all__ = ["CALL_SCOPE", "CATEGORIES", "PREPARE_SCOPE", "KinetoTimer", "Trace", "read_trace"]

_PROOF_CALLS = 2


class KinetoTimer(Timer):
    """Span and busy time of each call, from torch.profiler's records."""

    name: ClassVar[str] = "kineto"
    tells_gap: ClassVar[bool] = True
    reads_empty: ClassVar[bool] = False
    own_references: ClassVar[tuple[Reference, ...]] = (
        *capture(torch.profiler, "profile", "record_function"),
        *capture(torch.profiler.profile, "start", "stop"),
        *capture(torch.cuda, "synchronize"),
    )

    def __init__(self) -> None:
        self._device: Device | None = None

    def open(self, device: Device) -> None:
        """Show on a known call that its records arrive."""
        if device.kind != "cuda" or device.default_timer == "device_events":
            raise UnavailableError(f"the kineto timer serves NVIDIA devices, not {device.torch_name}")
        if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
            raise InstrumentConflictError(
                "torch.profiler is on in this process already; end it before timing with kineto, or ask for"
                " device_events"
            )
        note_use(Profiler.KINETO)
        self._device = device
        flush = device.flusher()
        flush()
        try:
            self.sample(Call(flush), do_nothing, _PROOF_CALLS)
        except TimingError as error:
            raise InstrumentConflictError(
                "torch.profiler gave no records of calls that launch kernels: another profiler has taken CUPTI in this"
                " process, such as an open Proton session. End it, use a process in which no other profiler has run,"
                " or ask for device_events"
            ) from error
        self.take_result()
        self.notes = (
            "kineto: latency is the span of the call's work on the device, over all streams; the profiler makes gaps"
            " longer in which the device waits for the host",
        )

    def close(self) -> None:
        """Forget the device; no profile outlives its pass."""
        self._device = None

    def collect(self, call: Call, prepare: Callable[[], object], count: int) -> Trace:
        """Run the rounds in one profile."""
        if self._device is None:
            raise TimingError("the kineto timer is not open; time_together opens it")
        synchronize, scope = self._device.synchronize, torch.profiler.record_function
        scopes, profile = Scopes(scope, lambda _: CALL_SCOPE), _profile()

        def prepare_in_scope() -> None:
            with scope(PREPARE_SCOPE):
                prepare()

        bracket = Bracket(scopes.enter, scopes.leave, done=synchronize, broken=scopes.leave)
        synchronize()
        profile.start()
        try:
            _, self.last_result = run_rounds(call, prepare_in_scope, count, bracket)
        finally:
            try:
                synchronize()
            finally:
                profile.stop()
        return Trace(_events(profile), count)

    def attribute(self, collected: Trace, *, count_copies: bool) -> Samples:
        """Give each call its own work; every call of a pass must launch the same number of kernels."""
        samples = attribute(read_trace(collected), count_copies=count_copies)
        kernels = samples.n_kernels or ()
        if len(set(kernels)) > 1:
            raise TimingError(
                f"the calls of one pass launched {min(kernels)} to {max(kernels)} kernels: either torch.profiler did"
                " not see all of them, or the call does not do the same work each time. Ask for cupti, which shows it"
            )
        return samples


def _profile() -> torch.profiler.profile:
    both = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    return torch.profiler.profile(activities=both, acc_events=True)


def _events(profile: torch.profiler.profile) -> list[dict[str, Any]]:
    """Read what the profile wrote; only what a recording needs, with times exact to the nanosecond."""
    with tempfile.TemporaryDirectory(prefix="kernelmark-kineto-") as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        trace = json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    return [event for event in trace["traceEvents"] if event.get("cat") in CATEGORIES]


# --- traces -------------------------------------------------------------------------------------------

CALL_SCOPE = "kernelmark.call"
PREPARE_SCOPE = "kernelmark.prepare"

_KINDS = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "memset"}
_LAUNCH_KINDS = ("cuda_runtime", "cuda_driver")
_KERNEL_LAUNCHES = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch")
CATEGORIES = frozenset({*_KINDS, *_LAUNCH_KINDS, "user_annotation"})
"""The events that are read; a trace holds others."""

_NS_PER_US = 1000

OVERLAP_NS = 1000
"""How much earlier than the flush ends a call may start; a kernel may start while the one before it drains."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One pass: the events of a chrome trace, and how many calls were made."""

    events: Sequence[Mapping[str, Any]]
    count: int


class _Scope(NamedTuple):
    start: Decimal
    end: Decimal
    thread: Any
    external: int


def read_trace(trace: Trace) -> Recording:
    """Say what ran on the device, and during which call it was launched.

    Raises:
        RecordsLostError: a kernel was launched and there is no record of its run.
        TimingError: there is not one scope for each call, or a call began before its flush had ended.
    """
    activities = tuple(_activity(e) for e in trace.events if e.get("cat") in _KINDS)
    launches = {
        int(e["args"]["correlation"]): e
        for e in trace.events
        if e.get("cat") in _LAUNCH_KINDS and "correlation" in e.get("args", {})
    }
    scopes = _scopes(trace)
    externals = {}
    for correlation, launch in launches.items():
        scope = _enclosing(scopes, launch)
        if scope is not None:
            externals[correlation] = scope.external
    recording = Recording(
        count=trace.count,
        activities=activities,
        externals={c: PREPARE_ID if e < 0 else iteration_id(e) for c, e in externals.items()},
        threads={correlation: launch["tid"] for correlation, launch in launches.items()},
        main_thread=scopes[0].thread,
    )
    _refuse_losses(launches, externals, activities)
    _refuse_early_starts(activities, externals)
    return recording


def _activity(event: Mapping[str, Any]) -> Activity:
    kind, arguments = _KINDS[event["cat"]], event["args"]
    start = _ns(event["ts"])
    name = event["name"]
    if kind == "copy":  # "Memcpy DtoD (Device -> Device)"
        name = name.split()[1] if len(name.split()) > 1 else name
    elif kind == "memset":
        name = "memset"
    return Activity(
        kind,  # type: ignore[arg-type]
        name,
        start,
        start + _ns(event["dur"]),
        int(arguments.get("correlation", 0)),
        int(arguments.get("stream", 0)),
        int(arguments.get("bytes", 0)),
    )


def _scopes(trace: Trace) -> list[_Scope]:
    """Give the scopes in order: for each call one that is negative (its preparation) and its own."""
    found = sorted(
        (
            e
            for e in trace.events
            if e.get("cat") == "user_annotation" and e["name"] in (CALL_SCOPE, PREPARE_SCOPE)
        ),
        key=lambda e: Decimal(e["ts"]),
    )
    names = [e["name"] for e in found]
    if names != [PREPARE_SCOPE, CALL_SCOPE] * trace.count:
        raise TimingError(
            f"torch.profiler recorded {names.count(CALL_SCOPE)} of {trace.count} calls: a profiler that something else"
            " switched on or off, or a call that profiles itself; no time is given"
        )
    return [
        _Scope(
            Decimal(e["ts"]),
            Decimal(e["ts"]) + Decimal(e["dur"]),
            e["tid"],
            place // 2 if place % 2 else -1 - place // 2,
        )
        for place, e in enumerate(found)
    ]


def _enclosing(scopes: Sequence[_Scope], launch: Mapping[str, Any]) -> _Scope | None:
    time = Decimal(launch["ts"])
    place = bisect_right(scopes, time, key=lambda scope: scope.start) - 1
    if place < 0 or time > scopes[place].end or launch["tid"] != scopes[place].thread:
        return None
    return scopes[place]


def _refuse_losses(
    launches: Mapping[int, Mapping[str, Any]], externals: Mapping[int, int], activities: Sequence[Activity]
) -> None:
    ran = {a.correlation for a in activities}
    lost = [
        correlation
        for correlation in externals
        if correlation not in ran and launches[correlation]["name"].startswith(_KERNEL_LAUNCHES)
    ]
    if lost:
        raise RecordsLostError(
            f"torch.profiler recorded {len(lost)} launches of kernels whose runs it did not record; time fewer calls,"
            " or ask for cupti, which repeats a pass that lost records"
        )


def _refuse_early_starts(activities: Sequence[Activity], externals: Mapping[int, int]) -> None:
    prepared: dict[int, int] = {}
    started: dict[int, int] = {}
    for a in activities:
        external = externals.get(a.correlation)
        if external is None:
            continue
        if external < 0:
            prepared[-1 - external] = max(a.end_ns, prepared.get(-1 - external, a.end_ns))
        else:
            started[external] = min(a.start_ns, started.get(external, a.start_ns))
    early = [i for i, start in started.items() if start < prepared.get(i, start) - OVERLAP_NS]
    if early:
        worst = max(prepared[i] - started[i] for i in early)
        raise TimingError(
            f"{len(early)} calls started on the device up to {worst} ns before their reset and flush had ended: they"
            " use a stream that does not wait for the current one. Let it wait (side.wait_stream(current)), or ask for"
            " cupti, which waits for the device before each call"
        )


def _ns(microseconds: Any) -> int:
    return int((Decimal(microseconds) * _NS_PER_US).to_integral_value())
