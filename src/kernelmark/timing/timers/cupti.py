"""CUPTI activity records: each call's own kernels, copies and memsets, and the proof that none are missing.

A call's launches carry its id, so overlap in time with anything else does not matter. The device is drained
before each call. What a reading says about nothing, or about work that it could not follow, is an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

from kernelmark.device import Device
from kernelmark.errors import (
    InstrumentConflictError,
    LossCounterUnprovedError,
    RecordsLostError,
    TimingError,
    UnavailableError,
)
from kernelmark.timing.timer import Call, Samples, Timer
from kernelmark.timing.timers.activity import PREPARE_ID, Recording, attribute, iteration_id
from kernelmark.timing.timers.cupti_session import BUFFER_BYTES, LOSING_BYTES, CuptiSession, Records
from kernelmark.units import format_bytes

__all__ = ["CuptiTimer"]

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
        run, args, result = call.run, call.args, None
        with session.collecting(buffer_bytes=buffer_bytes) as records:
            try:
                for index in range(count):
                    result = None
                    push(PREPARE_ID)
                    prepare()
                    pop()
                    synchronize()
                    push(iteration_id(index))
                    result = run(*args)
                    pop()
                    # the next flush must not run beside what this call left on another stream
                    synchronize()
            finally:
                synchronize()
        self.last_result = result
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
        records = self._pass(self._known_call(), _nothing, 2, BUFFER_BYTES)
        if len(records.activities) < 2 or not records.externals:
            raise InstrumentConflictError(
                f"CUPTI gave {len(records.activities)} activity and {len(records.externals)} correlation records"
                " for two calls that launch kernels: another profiler has taken it in this process, or"
                " cupti-python does not match the CUPTI that torch loads. Use a process in which no other profiler"
                " has run, install the cupti-python of torch's CUDA version, or ask for device_events"
            )

    def _prove_loss_counter(self) -> bool:
        """Lose records on purpose, and look whether they are counted."""
        records = self._pass(self._known_call(), _nothing, 2, LOSING_BYTES)
        return records.lost > 0 and not records.activities

    def _known_call(self) -> Call:
        if self._device is None:
            raise LossCounterUnprovedError("the cupti timer is not open; time_together opens it")
        return Call(self._device.flusher())


def _nothing() -> None:
    """Do nothing."""
