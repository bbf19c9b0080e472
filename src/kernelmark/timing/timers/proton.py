"""Proton: the sum of the kernel times of each call, as Triton's own profiler attributes them to scopes.

Neither the host nor launching nor a gap is in it. Before the first pass of a call, one call is looked at by
itself through Proton's own CUPTI; afterwards every call must show the kernels that were seen then. Over the replays
of a CUDA graph it is the same without a launch from the host: one graph holds all calls of a pass, each after its own
reset and flush, which lie outside the scopes. Not every call can be captured; one that cannot is an error and is read
by no other means.

One session at a time is opened in the way that Triton 3.6 to 3.9 share. Triton 3.6 can neither give a session's data
nor flush without ending it, so a session is ended and the ``.hatchet`` file it writes is read. What is in it belongs
to ``proton_records``.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from kernelmark.device import Device
from kernelmark.errors import InstrumentConflictError, TimingError, UnavailableError
from kernelmark.probe import require_module
from kernelmark.timing.profilers import Profiler, note_use, refuse_after_others
from kernelmark.timing.timer import (
    Bracket,
    Call,
    Reference,
    Samples,
    Scopes,
    Timer,
    capture,
    collection_off,
    run_rounds,
)
from kernelmark.timing.timers.activity import WorkPerCall, kernels_alone
from kernelmark.timing.timers.proton_records import (
    GRAPH_SCOPE,
    PREPARE_SCOPE,
    ProtonCupti,
    ScopedPass,
    attribute_scopes,
    call_scope,
)
from kernelmark.units import format_bytes, format_time

__all__ = ["CudagraphProtonTimer", "ProtonApi", "ProtonSession", "ProtonTimer"]


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
    scopes, scope = Scopes(session.scope, call_scope), session.scope

    def prepare_in_scope() -> None:
        with scope(PREPARE_SCOPE):
            prepare()

    bracket = Bracket(scopes.enter, scopes.leave, broken=scopes.leave)
    return run_rounds(call, prepare_in_scope, count, bracket)[1]


_UNCAPTURED = (
    "raised while the call was captured into a CUDA graph; a call that waits for the device, or that allocates or"
    " copies through another library, cannot be captured: ask for proton, kineto or cupti"
)


class CudagraphProtonTimer(ProtonTimer):
    """Sum of kernel times per call, the mean over the replays of one graph."""

    name: ClassVar[str] = "cudagraph_proton"
    replays: ClassVar[int] = 10
    """As often as Triton's do_bench_cudagraph_proton replays its graph."""
    note: ClassVar[str] = (
        "cudagraph_proton: the sum of the times of the call's kernels, each sample the mean of 10 replays of a CUDA"
        " graph; launching, gaps between kernels and the host are not in it"
    )
    own_references: ClassVar[tuple[Reference, ...]] = (
        *capture(torch.cuda, "CUDAGraph", "graph", "stream"),
        *capture(torch.cuda.CUDAGraph, "replay"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._stream: torch.cuda.Stream | None = None

    def open(self, device: Device) -> None:
        """Do as the proton timer, and take the stream that is captured."""
        super().open(device)
        self._stream = torch.cuda.Stream(device=device.torch_name)

    def close(self) -> None:
        """Let Proton and the stream go."""
        super().close()
        self._stream = None

    def _run(self, session: ProtonSession, call: Call, prepare: Callable[[], object], count: int) -> object:
        """Capture all rounds and replay them; the session is open before anything is captured."""
        if self._stream is None or self._device is None:
            raise TimingError(f"the {self.name} timer is not open; time_together opens it")
        stream, graph = self._stream, torch.cuda.CUDAGraph()
        self._device.synchronize()
        with torch.cuda.stream(stream), collection_off(), session.scope(GRAPH_SCOPE):
            captured = _Capture(session, call, prepare)
            try:
                with torch.cuda.graph(graph, stream=stream):
                    captured.rounds(count)
            except BaseException as error:  # noqa: BLE001 - raised again
                # a capture that was broken off raises an error of its own where it ends
                first = captured.error or error
                first.add_note(_UNCAPTURED)
                raise first from first.__cause__
            for _ in range(self.replays):
                graph.replay()
            self._device.synchronize()
        return captured.result


class _Capture:
    """The rounds of one pass while they are captured, and the error that broke them off."""

    def __init__(self, session: ProtonSession, call: Call, prepare: Callable[[], object]) -> None:
        self._in_order = session, call, prepare
        self.result: object = None
        self.error: BaseException | None = None

    def rounds(self, count: int) -> None:
        session, call, prepare = self._in_order
        try:
            self.result = launch_scoped(session, call, prepare, count)
        except BaseException as error:
            self.error = error
            raise


# --- sessions -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class ProtonSession:
    """A session that is open; ``database`` is there once it has ended without an error."""

    scope: Callable[[str], contextlib.AbstractContextManager[Any]]
    database: list[Any] = field(default_factory=list)


class ProtonApi:
    """The process's hold on Proton.

    Raises:
        UnavailableError: Triton, or its profiler, is not installed.
        InstrumentConflictError: another profiler came first, or a session of somebody else is open.
    """

    def __init__(self) -> None:
        self._api: Any = require_module("triton.profiler", extra="triton")
        self._flags: Any = require_module("triton.profiler.flags", extra="triton").flags
        refuse_after_others(Profiler.PROTON)
        if self._flags.profiling_on:
            raise InstrumentConflictError(
                "a Proton session is open in this process already, and what kernelmark reads would end up in it: end"
                " it (triton.profiler.finalize()) before timing with Proton"
            )
        note_use(Profiler.PROTON)

    @contextmanager
    def session(self) -> Iterator[ProtonSession]:
        """Profile the ``with`` block; the session is ended also after an error, which stays the error.

        The caller waits for the device before the block ends.
        """
        with tempfile.TemporaryDirectory(prefix="kernelmark-proton-") as folder:
            number = self._start(str(Path(folder) / "profile"))
            session = ProtonSession(self._api.scope)
            try:
                yield session
            except BaseException as first:
                try:
                    self._end(number)
                except Exception as second:  # noqa: BLE001 - told with the first error, which says more
                    first.add_note(f"ending the Proton session failed too: {second!r}")
                raise
            self._end(number)
            session.database = _read(Path(folder))

    def _start(self, name: str) -> int:
        try:
            number = self._api.start(name, context="shadow", data="tree")
        except RuntimeError as error:
            self._flags.profiling_on = False
            raise InstrumentConflictError(
                f"Proton could not start ({error}): another profiler has been used in this process before it, such as"
                " torch.profiler or anything else that reads CUPTI. Use a process in which Proton comes first, or ask"
                " for kineto, cupti or device_events"
            ) from error
        if number is None:
            self._flags.profiling_on = False
            raise TimingError(
                "Proton opened no session: it is switched off (TRITON_PROTON_DISABLE, or this script was started by the"
                " proton command); switch it on, or ask for kineto, cupti or device_events"
            )
        return number

    def _end(self, number: int) -> None:
        try:
            self._api.finalize(number, output_format="hatchet")
        finally:
            self._flags.profiling_on = False  # ending one session leaves it on, and no other is open


def _read(folder: Path) -> list[Any]:
    files = list(folder.glob("*.hatchet"))
    if len(files) != 1:
        raise TimingError(
            f"Proton wrote {len(files)} hatchet files at the end of its session rather than one; no time is given"
        )
    return json.loads(files[0].read_text(encoding="utf-8"))
