"""Proton: the sum of the kernel times of each call, as Triton's own profiler attributes them to scopes.

Neither the host nor launching nor a gap is in it. Before the first pass of a call, one call is looked at by
itself through Proton's own CUPTI; afterwards every call must show the kernels that were seen then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from kernelmark.device import Device
from kernelmark.errors import InstrumentConflictError, TimingError, UnavailableError
from kernelmark.timing.timer import Call, Samples, Timer
from kernelmark.timing.timers.device_work import WorkPerCall, kernels_alone
from kernelmark.timing.timers.proton_cupti import ProtonCupti
from kernelmark.timing.timers.proton_session import ProtonApi, ProtonSession
from kernelmark.timing.timers.proton_tree import PREPARE_SCOPE, ScopedPass, attribute_scopes, call_scope
from kernelmark.units import format_bytes, format_time

__all__ = ["ProtonTimer", "launch_scoped"]


class ProtonTimer(Timer):
    """Sum of kernel times, one scope a call."""

    name: ClassVar[str] = "proton"
    reads_empty: ClassVar[bool] = False
    replays: ClassVar[int] = 1
    """How often each call of a pass runs; a reading is the mean."""
    note: ClassVar[str] = (
        "proton: the sum of the times of the call's kernels; launching, gaps between kernels and the host are not in it"
    )

    def __init__(self) -> None:
        self._api: ProtonApi | None = None
        self._cupti: ProtonCupti | None = None
        self._device: Device | None = None
        self._known: dict[int, tuple[Call, WorkPerCall]] = {}

    def open(self, device: Device) -> None:
        """Take Proton, and show on a known call that its records arrive, and that CUPTI's are read rightly."""
        if device.kind != "cuda" or device.default_timer == "device_events":
            raise UnavailableError(f"the {self.name} timer serves NVIDIA devices, not {device.torch_name}")
        self.notes = (self.note,)
        self._device, self._api = device, ProtonApi()
        flush = device.flusher()
        flush()
        device.synchronize()
        with self._api.session() as session:
            with session.scope(call_scope(0)):
                flush()
            device.synchronize()
        self._cupti = ProtonCupti.find()
        try:
            work = kernels_alone(self._cupti.collect(flush, device.synchronize), timer=self.name)
            attribute_scopes(ScopedPass(session.database, 1, work))
        except TimingError as error:
            raise InstrumentConflictError(
                f"a call that launches kernels was not read as such ({error}): another profiler has been used in this"
                " process, or this Triton's CUPTI does not fit the driver. Use a process in which Proton comes first,"
                " or ask for kineto, cupti or device_events"
            ) from error

    def close(self) -> None:
        """Let Proton go; no session outlives its pass."""
        self._api, self._cupti, self._device, self._known = None, None, None, {}

    def collect(self, call: Call, prepare: Callable[[], object], count: int) -> ScopedPass:
        """Run the rounds in one session, each call in a scope of its own."""
        if self._api is None or self._device is None:
            raise TimingError(f"the {self.name} timer is not open; time_together opens it")
        work = self._work(call, prepare)
        with self._api.session() as session:
            try:
                result = self._run(session, call, prepare, count)
            finally:
                self._device.synchronize()
        self.last_result = result
        return ScopedPass(session.database, count, work, self.replays)

    def attribute(self, collected: ScopedPass, *, count_copies: bool) -> Samples:
        """Add up each call's kernels; a call that copies was refused before, whatever ``count_copies`` says."""
        return attribute_scopes(collected)

    def _run(self, session: ProtonSession, call: Call, prepare: Callable[[], object], count: int) -> object:
        """Run or replay what is to be read; return what the last call returned."""
        return launch_scoped(session, call, prepare, count)

    def _work(self, call: Call, prepare: Callable[[], object]) -> WorkPerCall:
        """Look at one call by itself, once for each that is timed."""
        if id(call) not in self._known:
            work = self._look_at(call, prepare)
            self._known[id(call)] = call, work  # the call is kept so that its id stays its own
            if work.memsets:
                self._tell_memsets(work)
        return self._known[id(call)][1]

    def _look_at(self, call: Call, prepare: Callable[[], object]) -> WorkPerCall:
        if self._cupti is None or self._device is None:
            raise TimingError(f"the {self.name} timer is not open; time_together opens it")
        prepare()
        activities = self._cupti.collect(lambda: call.run(*call.args), self._device.synchronize)
        return kernels_alone(activities, timer=self.name)

    def _tell_memsets(self, work: WorkPerCall) -> None:
        told = (
            f"{self.name}: a call with {work.memsets} memset(s) of {format_bytes(work.memset_bytes)}, some"
            f" {format_time(work.memset_ns, 3)}, is read without them"
        )
        self.notes = (*self.notes, told)


def launch_scoped(session: ProtonSession, call: Call, prepare: Callable[[], object], count: int) -> object:
    """Launch ``count`` rounds, each call in its scope; return what the last one returned."""
    run, args, scope, result = call.run, call.args, session.scope, None
    for index in range(count):
        result = None
        with scope(PREPARE_SCOPE):
            prepare()
        with scope(call_scope(index)):
            result = run(*args)
    return result
