"""torch.profiler (Kineto): the span of each call's work on the device, over all streams.

The device is not drained before a call, so that what precedes it (the flush, or a sleep on the GPU) hides what
launching costs the host. The device is drained after it, so that what follows is not read with it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import torch

from kernelmark.device import Device
from kernelmark.errors import InstrumentConflictError, TimingError, UnavailableError
from kernelmark.timing.profilers import Profiler, note_use
from kernelmark.timing.references import Reference, capture
from kernelmark.timing.timer import Call, Samples, Timer
from kernelmark.timing.timers.activity import attribute
from kernelmark.timing.timers.kineto_trace import CALL_SCOPE, CATEGORIES, PREPARE_SCOPE, Trace, read_trace

__all__ = ["KinetoTimer"]

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
            self.sample(Call(flush), _nothing, _PROOF_CALLS)
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
        run, args, result = call.run, call.args, None
        profile = _profile()
        synchronize()
        profile.start()
        try:
            for _ in range(count):
                result = None
                with scope(PREPARE_SCOPE):
                    prepare()
                with scope(CALL_SCOPE):
                    result = run(*args)
                synchronize()
        finally:
            try:
                synchronize()
            finally:
                profile.stop()
        self.last_result = result
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


def _nothing() -> None:
    """Do nothing."""
