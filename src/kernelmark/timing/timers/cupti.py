"""CUPTI activity records: each call's own kernels, copies and memsets, and the proof that none are missing.

A call's launches carry its id, so overlap in time with anything else does not matter. The device is drained
before each call. What a reading says about nothing, or about work that it could not follow, is an error. What the
records mean belongs to ``activity``.

The session below goes through cupti-python. One at a time holds the process's callbacks, and it hands out plain
values: nothing that points into CUPTI's buffers leaves the callback. Measured on an H200 (cupti-python 13.0.1, torch
2.11): a torch.profiler session takes the callbacks away, and collecting afterwards gives no records and no error;
registering them again, as each session does here, mends that. Buffers of 128 bytes lose every record and the count of
lost records says so exactly. Tracing every API call made the flush of 20 calls five times as long (51 ms against 10)
as tracing launches and copies alone. Single calls can be switched off only after their kind was switched on, each time
anew; switching single calls on without the kind gives no records.

torch.profiler also leaves its own clock behind, which counts the processor's cycles: times read after it were
2.1 times too long on a processor of 2.1 GHz. So each session compares CUPTI's clock with the host's and converts.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kernelmark.device import Device
from kernelmark.errors import (
    InstrumentConflictError,
    LossCounterUnprovedError,
    RecordsLostError,
    TimingError,
    UnavailableError,
)
from kernelmark.probe import require_module
from kernelmark.timing.profilers import Profiler, note_use
from kernelmark.timing.timer import Bracket, Call, Samples, Timer, do_nothing, run_rounds
from kernelmark.timing.timers.activity import PREPARE_ID, Activity, Recording, attribute, iteration_id
from kernelmark.units import format_bytes

__all__ = ["CuptiSession", "CuptiTimer", "Records", "clock_rate"]

_ATTEMPTS = 4
_GROWTH = 4

_counter_proved: dict[str, bool] = {}
"""Whether this process's loss counter was seen to count; asked once, since it costs a few launches."""


class CuptiTimer(Timer):
    """Device busy time and latency of each call, from activity records."""

    name: ClassVar[str] = "cupti"
    tells_gap: ClassVar[bool] = True
    reads_empty: ClassVar[bool] = False

    def __init__(self) -> None:
        self._session: CuptiSession | None = None
        self._device: Device | None = None
        self._buffer_bytes = BUFFER_BYTES

    def open(self, device: Device) -> None:
        """Take CUPTI, and show on a known call that its records arrive and that losing some is counted."""
        if device.kind != "cuda":
            raise UnavailableError(f"the cupti timer serves NVIDIA devices, not {device.torch_name}")
        self._device, self._session = device, CuptiSession()
        self._show_that_records_arrive()
        if "proved" not in _counter_proved:
            _counter_proved["proved"] = self._prove_loss_counter()

    def close(self) -> None:
        """Let CUPTI go."""
        if self._session is not None:
            self._session.close()
        self._session, self._device = None, None

    def collect(self, call: Call, prepare: Callable[[], object], count: int) -> Recording:
        """Run the rounds; again with a larger buffer where records were lost, on any attempt but the last."""
        retries = 0
        while True:
            records = self._pass(call, prepare, count, self._buffer_bytes)
            if not records.lost:
                return self._recording(records, count, retries)
            if retries + 1 >= _ATTEMPTS:
                raise RecordsLostError(
                    f"CUPTI lost {records.lost} records of {count} calls even with buffers of"
                    f" {format_bytes(self._buffer_bytes)}; time fewer calls (--kernelmark-sample-ms), or ask for"
                    " device_events"
                )
            self._buffer_bytes *= _GROWTH
            retries += 1

    def attribute(self, collected: Recording, *, count_copies: bool) -> Samples:
        """Give each call its own work; see ``activity.attribute``."""
        return attribute(collected, count_copies=count_copies)

    def _pass(self, call: Call, prepare: Callable[[], object], count: int, buffer_bytes: int) -> Records:
        session, device = self._session, self._device
        if session is None or device is None:
            raise TimingError("the cupti timer is not open; time_together opens it")
        push, pop, synchronize = session.push, session.pop, device.synchronize
        identifiers = map(iteration_id, range(count))

        def prepare_and_drain() -> None:
            push(PREPARE_ID)
            prepare()
            pop()
            synchronize()

        # after the call too: the next flush must not run beside what it left on another stream
        bracket = Bracket(lambda: push(next(identifiers)), pop, done=synchronize)
        with session.collecting(buffer_bytes=buffer_bytes) as records:
            try:
                _, self.last_result = run_rounds(call, prepare_and_drain, count, bracket)
            finally:
                synchronize()
        return records

    def _recording(self, records: Records, count: int, retries: int) -> Recording:
        return Recording(
            count=count,
            activities=tuple(records.activities),
            externals=records.externals,
            threads=records.threads,
            main_thread=threading.get_native_id(),
            loss_counter_proved=_counter_proved.get("proved", False),
            retries=retries,
        )

    def _show_that_records_arrive(self) -> None:
        """Collect from calls whose work is known: silence here is the instrument's, not the callable's."""
        records = self._pass(self._known_call(), do_nothing, 2, BUFFER_BYTES)
        if len(records.activities) < 2 or not records.externals:
            raise InstrumentConflictError(
                f"CUPTI gave {len(records.activities)} activity and {len(records.externals)} correlation records"
                " for two calls that launch kernels: another profiler has taken it in this process, or"
                " cupti-python does not match the CUPTI that torch loads. Use a process in which no other profiler"
                " has run, install the cupti-python of torch's CUDA version, or ask for device_events"
            )

    def _prove_loss_counter(self) -> bool:
        """Lose records on purpose, and look whether they are counted."""
        records = self._pass(self._known_call(), do_nothing, 2, LOSING_BYTES)
        return records.lost > 0 and not records.activities

    def _known_call(self) -> Call:
        if self._device is None:
            raise LossCounterUnprovedError("the cupti timer is not open; time_together opens it")
        return Call(self._device.flusher())


# --- cupti-python ------------------------------------------------------------------------------------

BUFFER_BYTES = 8 << 20
"""What CUPTI's own samples ask for; about 50,000 records."""

LOSING_BYTES = 8
"""Too small for any record."""

_CLOCK_LOOK_S = 0.002
_CLOCK_MEASURE_S = 0.1
_CLOCK_TOLERANCE = 0.01
"""Two clocks of nanoseconds differ by far less over 2 ms; reading one after the other costs up to a microsecond."""

_KINDS = ("CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET", "EXTERNAL_CORRELATION", "RUNTIME", "DRIVER")

_RUNTIME_APIS = ("cudaLaunch", "cudaMemcpy", "cudaMemset", "cudaGraphLaunch")
_DRIVER_APIS = ("cuLaunch", "cuMemcpy", "cuMemset", "cuGraphLaunch")


@dataclass(slots=True)
class Records:
    """What one collection gave."""

    activities: list[Activity] = field(default_factory=list)
    externals: dict[int, int] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)
    lost: int = 0


class CuptiSession:
    """The process's hold on CUPTI's activity API.

    Raises:
        UnavailableError: cupti-python is not installed.
        InstrumentConflictError: CUPTI refuses, because another profiler has it.
    """

    def __init__(self) -> None:
        self._api: Any = require_module("cupti.cupti", extra="cuda")
        self._records = Records()
        self._buffer_bytes = BUFFER_BYTES
        self._custom = self._api.ExternalCorrelationKind.CUSTOM0
        self._copy_names = _copy_names(self._api)
        self._readers = _readers(self._api)
        self._pushed = 0
        self._others = _calls_without_work(self._api)
        note_use(Profiler.CUPTI)
        try:
            self._api.set_thread_id_type(self._api.ActivityThreadIdType.SYSTEM)
            self._api.activity_register_callbacks(self._requested, self._completed)
        except self._api.cuptiError as error:
            raise InstrumentConflictError(conflict_message(error)) from error
        self._ns, self._ticks = clock_rate(self._api.get_timestamp)

    def push(self, external_id: int) -> None:
        """Let what this thread launches from here on carry ``external_id``."""
        self._api.activity_push_external_correlation_id(self._custom, external_id)
        self._pushed += 1

    def pop(self) -> None:
        """End the last ``push``."""
        self._api.activity_pop_external_correlation_id(self._custom)
        self._pushed -= 1

    @contextmanager
    def collecting(self, *, buffer_bytes: int = BUFFER_BYTES) -> Iterator[Records]:
        """Collect inside the ``with`` block; the records are complete after it.

        The caller waits for the device before the block ends.
        """
        self._api.activity_flush_all(1)
        self.lost()  # reading the count also clears it
        self._records, self._buffer_bytes = Records(), buffer_bytes
        records = self._records
        try:
            for kind in _KINDS:
                self._api.activity_enable(self._api.ActivityKind[kind])
            self._trace_launches_only()
            yield records
        finally:
            while self._pushed:  # a call that raised left its id
                self.pop()
            self._api.activity_flush_all(1)
            for kind in _KINDS:
                self._api.activity_disable(self._api.ActivityKind[kind])
            records.lost = self.lost()
            self._records = Records()

    def lost(self) -> int:
        """Give the number of records lost since the last time this was asked."""
        count = ctypes.c_size_t(0)
        self._api.activity_get_num_dropped_records(0, 0, ctypes.addressof(count))
        return count.value

    def close(self) -> None:
        """Stop listening to what may still come."""
        self._records = Records()

    def _trace_launches_only(self) -> None:
        """Switch off the API calls that neither launch nor copy: attribution does not need them."""
        for disable, number in self._others:
            disable(number, 0)

    def _requested(self) -> tuple[int, int]:
        return self._buffer_bytes, 0

    def _completed(self, activities: list[Any]) -> None:
        # runs on CUPTI's thread, and the structs die when it returns: plain values only
        records, readers = self._records, self._readers
        for activity in activities:
            reader = readers.get(activity.kind)
            if reader is not None:
                reader(self, records, activity)

    def _times(self, a: Any) -> tuple[int, int]:
        if self._ns == self._ticks:
            return a.start, a.end
        return a.start * self._ns // self._ticks, a.end * self._ns // self._ticks

    def _kernel(self, records: Records, a: Any) -> None:
        records.activities.append(
            Activity("kernel", a.name or "unnamed kernel", *self._times(a), a.correlation_id, a.stream_id)
        )

    def _copy(self, records: Records, a: Any) -> None:
        name = self._copy_names.get(int(a.copy_kind), f"kind {int(a.copy_kind)}")
        records.activities.append(
            Activity("copy", name, *self._times(a), a.correlation_id, a.stream_id, int(a.bytes))
        )

    def _memset(self, records: Records, a: Any) -> None:
        records.activities.append(
            Activity("memset", "memset", *self._times(a), a.correlation_id, a.stream_id, int(a.bytes))
        )

    def _external(self, records: Records, a: Any) -> None:
        if a.external_kind == self._custom:
            records.externals[a.correlation_id] = a.external_id

    def _launch(self, records: Records, a: Any) -> None:
        records.threads[a.correlation_id] = a.thread_id


def clock_rate(read: Callable[[], int], *, host: Callable[[], int] = time.perf_counter_ns) -> tuple[int, int]:
    """Give how many nanoseconds pass in how many ticks of ``read``; ``(1, 1)`` for a clock of nanoseconds."""
    ns, ticks = _both(read, host, _CLOCK_LOOK_S)
    if abs(ticks - ns) <= _CLOCK_TOLERANCE * ns:
        return 1, 1
    ns, ticks = _both(read, host, _CLOCK_MEASURE_S)
    if ticks <= 0:
        raise TimingError(
            f"CUPTI's clock moved by {ticks} ticks in {ns} ns of the host's, so its times mean nothing; use a process"
            " in which no other profiler has run, or ask for device_events"
        )
    return ns, ticks


def _both(read: Callable[[], int], host: Callable[[], int], seconds: float) -> tuple[int, int]:
    start, first = host(), read()
    time.sleep(seconds)
    end, last = host(), read()
    return end - start, last - first


def conflict_message(error: object) -> str:
    """Say that CUPTI is taken, by whom as far as can be told, and what to do."""
    import sys

    suspects = [name for name in ("triton.profiler", "torch.profiler") if name in sys.modules]
    who = f" ({' or '.join(suspects)} has been used in this process)" if suspects else ""
    return (
        f"CUPTI refused ({error}): another profiler holds it{who}; use a process in which no other profiler has"
        " run, or ask for device_events"
    )


def _calls_without_work(api: Any) -> list[tuple[Any, int]]:
    """List the traced API calls that neither launch nor copy, with what switches each one."""
    found = []
    for enum, switch, working in (
        (api.runtime_api_trace_cbid, api.activity_enable_runtime_api, _RUNTIME_APIS),
        (api.driver_api_trace_cbid, api.activity_enable_driver_api, _DRIVER_APIS),
    ):
        for name, member in enum.__members__.items():
            called = name.split("__", 1)[-1]  # some carry the enum's name in front
            if not called.isupper() and not called.startswith(working):
                found.append((switch, int(member)))
    return found


def _readers(api: Any) -> dict[int, Any]:
    kind = api.ActivityKind
    return {
        int(kind.CONCURRENT_KERNEL): CuptiSession._kernel,
        int(kind.MEMCPY): CuptiSession._copy,
        int(kind.MEMCPY2): CuptiSession._copy,
        int(kind.MEMSET): CuptiSession._memset,
        int(kind.EXTERNAL_CORRELATION): CuptiSession._external,
        int(kind.RUNTIME): CuptiSession._launch,
        int(kind.DRIVER): CuptiSession._launch,
    }


def _copy_names(api: Any) -> dict[int, str]:
    names = {"HTOD": "HtoD", "DTOH": "DtoH", "DTOD": "DtoD", "HTOH": "HtoH", "PTOP": "PtoP"}
    return {int(api.ActivityMemcpyKind[key]): name for key, name in names.items()}
