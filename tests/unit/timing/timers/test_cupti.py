"""The CUPTI timer over an API that plays CUPTI's part: what is asked of it, in which order, and what silence means."""

from __future__ import annotations

import ctypes
import enum
import sys
import threading
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kernelmark.device import FakeDevice
from kernelmark.errors import (
    EmptyIterationError,
    InstrumentConflictError,
    LossCounterUnprovedError,
    RecordsLostError,
    UnavailableError,
)
from kernelmark.timing import Call
from kernelmark.timing.timers import cupti
from kernelmark.timing.timers.cupti import CuptiTimer

Kind = enum.IntEnum(
    "Kind", "CONCURRENT_KERNEL MEMCPY MEMCPY2 MEMSET EXTERNAL_CORRELATION RUNTIME DRIVER", start=1
)
CopyKind = enum.IntEnum("CopyKind", "HTOD DTOH DTOD HTOH PTOP", start=1)
Runtime = enum.IntEnum(
    "Runtime", "INVALID cudaLaunchKernel_v7000 cudaMemcpyAsync_v3020 cudaGetDevice_v3020", start=0
)
Driver = enum.IntEnum("Driver", "INVALID cuLaunchKernelEx cuCtxSynchronize", start=0)


class CuptiError(Exception):
    """What the library raises."""


class PlayedCupti(ModuleType):
    """Plays cupti-python's part: launches are recorded only while their kinds are on, into buffers of a size."""

    ActivityKind = Kind
    ActivityMemcpyKind = CopyKind
    ExternalCorrelationKind = SimpleNamespace(CUSTOM0=6)
    ActivityThreadIdType = SimpleNamespace(SYSTEM=1)
    runtime_api_trace_cbid = Runtime
    driver_api_trace_cbid = Driver
    cuptiError = CuptiError  # noqa: N815 - the library's own name

    def __init__(self) -> None:
        super().__init__("cupti.cupti")
        self.on: set[int] = set()
        self.off_calls: set[int] = set()
        self.ids: list[int] = []
        self.pending: list[Any] = []
        self.dropped = 0
        self.counts_losses = True
        self.deaf = False
        self.refuses = False
        self.lose_below = 64
        self.clock = 0
        self.ticks_per_ns = 1
        self.correlation = 0

    def get_timestamp(self) -> int:
        return time.perf_counter_ns() * self.ticks_per_ns

    def set_thread_id_type(self, kind: int) -> None:
        if self.refuses:
            raise CuptiError("MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")

    def activity_register_callbacks(self, requested: Any, completed: Any) -> None:
        self.requested, self.completed = requested, completed

    def activity_enable(self, kind: int) -> None:
        self.on.add(int(kind))
        self.off_calls.clear()  # switching a kind on switches all its calls on again

    def activity_disable(self, kind: int) -> None:
        self.on.discard(int(kind))

    def activity_enable_runtime_api(self, number: int, value: int) -> None:
        assert Kind.RUNTIME in self.on
        assert value == 0
        self.off_calls.add(number)

    def activity_enable_driver_api(self, number: int, value: int) -> None:
        assert Kind.DRIVER in self.on
        self.off_calls.add(100 + number)

    def activity_push_external_correlation_id(self, kind: int, number: int) -> None:
        self.ids.append(number)

    def activity_pop_external_correlation_id(self, kind: int) -> int:
        return self.ids.pop()

    def activity_flush_all(self, flag: int) -> None:
        assert flag == 1
        records, self.pending = self.pending, []
        if records:
            self.completed(records)

    def activity_get_num_dropped_records(self, context: int, stream: int, pointer: int) -> None:
        ctypes.c_size_t.from_address(pointer).value = self.dropped if self.counts_losses else 0
        self.dropped = 0

    def launch(self, name: str = "k", length: int = 10, thread: int | None = None) -> None:
        """Be the driver: one kernel is launched."""
        self.clock += 100
        self.correlation += 1
        if self.deaf or Kind.CONCURRENT_KERNEL not in self.on:
            return
        if self.requested()[0] < self.lose_below:
            self.dropped += 1
            return
        ours = thread is None
        self.pending += [
            SimpleNamespace(
                kind=Kind.RUNTIME,
                correlation_id=self.correlation,
                thread_id=threading.get_native_id() if ours else thread,
            ),
            SimpleNamespace(
                kind=Kind.CONCURRENT_KERNEL,
                name=name,
                start=self.clock,
                end=self.clock + length,
                correlation_id=self.correlation,
                stream_id=7,
            ),
        ]
        if ours and self.ids:
            self.pending.append(
                SimpleNamespace(
                    kind=Kind.EXTERNAL_CORRELATION,
                    external_kind=6,
                    external_id=self.ids[-1],
                    correlation_id=self.correlation,
                )
            )


class CudaLike(FakeDevice):
    """A fake device that says it is a CUDA one and whose flush launches a kernel."""

    def __init__(self, api: PlayedCupti) -> None:
        super().__init__(kind="cuda")
        self.api = api

    def flusher(self) -> Any:
        return lambda: self.api.launch("flush", 1000)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> PlayedCupti:
    played = PlayedCupti()
    package = ModuleType("cupti")
    package.__path__ = []  # type: ignore[attr-defined]
    package.__spec__ = played.__spec__ = SimpleNamespace(name="cupti", submodule_search_locations=[])  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "cupti", package)
    monkeypatch.setitem(sys.modules, "cupti.cupti", played)
    monkeypatch.setattr(cupti, "_counter_proved", {})
    return played


@pytest.fixture
def timer(api: PlayedCupti) -> CuptiTimer:
    opened = CuptiTimer()
    opened.open(CudaLike(api))
    return opened


@pytest.mark.spec("T29", "T31")
def test_each_call_gets_its_own_kernels_and_the_flush_is_in_none(timer: CuptiTimer, api: PlayedCupti) -> None:
    lengths = iter((10, 20, 30))
    found = timer.sample(Call(lambda: api.launch("k", next(lengths))), lambda: api.launch("flush", 1000), 3)
    assert found.device_busy_ns == (10, 20, 30)
    assert found.n_kernels == (1, 1, 1)
    assert [k.name for k in found.kernels] == ["k"]


def test_only_launches_and_copies_are_traced(timer: CuptiTimer, api: PlayedCupti) -> None:
    timer.sample(Call(api.launch), lambda: None, 1)
    assert api.off_calls == {int(Runtime.cudaGetDevice_v3020), 100 + int(Driver.cuCtxSynchronize)}
    assert not api.on


@pytest.mark.spec("T32")
def test_lost_records_are_retried_with_a_larger_buffer_and_counted(
    timer: CuptiTimer, api: PlayedCupti
) -> None:
    api.lose_below = cupti.BUFFER_BYTES * 8
    found = timer.sample(Call(api.launch), lambda: None, 2)
    assert found.retries == 2
    api.lose_below = 1 << 60
    with pytest.raises(RecordsLostError, match=r"lost 2 records of 2 calls"):
        timer.sample(Call(api.launch), lambda: None, 2)


@pytest.mark.spec("T32", "X6")
def test_a_call_that_launches_nothing_is_an_error_at_once(timer: CuptiTimer) -> None:
    with pytest.raises(EmptyIterationError):
        timer.sample(Call(lambda: None), lambda: None, 2)


@pytest.mark.spec("T32")
def test_with_a_counter_that_does_not_count_nobody_is_blamed(api: PlayedCupti) -> None:
    api.counts_losses = False
    opened = CuptiTimer()
    opened.open(CudaLike(api))
    with pytest.raises(LossCounterUnprovedError):
        opened.sample(Call(lambda: None), lambda: None, 2)


@pytest.mark.spec("T33")
def test_the_callables_own_error_propagates_and_everything_is_switched_off(
    timer: CuptiTimer, api: PlayedCupti
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        timer.sample(Call(fail), lambda: None, 2)
    assert not api.on
    assert not api.ids
    assert timer.sample(Call(api.launch), lambda: None, 1).device_busy_ns == (10,)


@pytest.mark.spec("T33")
def test_silence_and_refusal_are_conflicts_that_say_what_to_do(api: PlayedCupti) -> None:
    api.deaf = True
    with pytest.raises(InstrumentConflictError, match="another profiler has taken it"):
        CuptiTimer().open(CudaLike(api))
    api.refuses = True
    with pytest.raises(InstrumentConflictError, match="MULTIPLE_SUBSCRIBERS"):
        CuptiTimer().open(CudaLike(api))


@pytest.mark.spec("T33")
def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    with pytest.raises(UnavailableError, match=r"kernelmark\[cuda\]"):
        CuptiTimer().open(CudaLike(PlayedCupti()))


@pytest.mark.spec("X6")
def test_times_are_nanoseconds_also_where_torch_profiler_left_a_clock_of_cycles(api: PlayedCupti) -> None:
    api.ticks_per_ns = 2
    opened = CuptiTimer()
    opened.open(CudaLike(api))
    found = opened.sample(Call(lambda: api.launch("k", 2_000_000)), lambda: None, 1)
    assert found.device_busy_ns[0] == pytest.approx(1_000_000, rel=0.01)


def test_a_device_that_is_not_nvidias_is_refused(api: PlayedCupti) -> None:
    with pytest.raises(UnavailableError, match="serves NVIDIA"):
        CuptiTimer().open(FakeDevice())
