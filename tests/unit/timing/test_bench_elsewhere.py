"""A process of its own: what can be sent there, what comes back, and what is refused."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from kernelmark.device import CpuDevice
from kernelmark.errors import InstrumentConflictError, TimingError
from kernelmark.report.notes import note_text
from kernelmark.timing import Budget, Call, Timer, TimingOptions, bench_kernel
from kernelmark.timing.bench import time_isolated
from kernelmark.timing.timer import Samples

CONFLICT = InstrumentConflictError("Proton was asked for, but torch.profiler came first. Use cupti")
OPTIONS = TimingOptions(budget=Budget(warmup_ms=0, sample_ms=1, blocks=1), cache="warm")  # type: ignore[arg-type]


def isolated(call: Call) -> Any:
    return time_isolated(call, "cpu", timer="host", options=OPTIONS, conflict=CONFLICT)


@pytest.mark.spec("X7")
def test_an_importable_call_is_timed_there_and_its_row_says_why() -> None:
    found = isolated(Call(operator.add, (1, 2)))
    assert found.timer == "host"
    assert found.device_busy.samples >= 2
    assert "process of its own, because Proton was asked for, but torch.profiler came first" in note_text(
        found.notes[-1]
    )


@pytest.mark.spec("X7")
@pytest.mark.parametrize("what", ["closure", "main"])
def test_a_call_that_cannot_be_sent_is_refused_with_the_conflict(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closure() -> None: ...

    run: Callable[..., object] = closure
    if what == "main":
        import __main__

        run = FunctionType((lambda: None).__code__, {}, "of_the_script")
        run.__module__ = "__main__"
        run.__qualname__ = "of_the_script"
        monkeypatch.setattr(__main__, "of_the_script", run, raising=False)
    with pytest.raises(InstrumentConflictError, match=r"torch\.profiler came first.*can be\s+imported"):
        isolated(Call(run))


def test_the_calls_own_error_comes_back() -> None:
    with pytest.raises(ZeroDivisionError):
        isolated(Call(operator.truediv, (1, 0)))


def test_a_process_that_dies_is_an_error_and_not_a_time() -> None:
    import os

    with pytest.raises(
        TimingError, match=r"torch\.profiler came first gave no answer: its process ended with status 3"
    ):
        isolated(Call(os._exit, (3,)))


class TakenTimer(Timer):
    """A timer whose profiler cannot start."""

    name = "host"

    def open(self, device: object) -> None:
        raise CONFLICT

    def collect(self, call: Call, prepare: Callable[[], object], count: int) -> None: ...

    def attribute(self, collected: object, *, count_copies: bool) -> Samples:
        raise AssertionError("it was never open")


def test_a_named_timer_that_is_in_conflict_moves_and_a_given_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kernelmark.timing import bench

    monkeypatch.setattr(bench, "open_timer", lambda name, device: TakenTimer())
    found = bench_kernel(operator.add, (1, 2), device=CpuDevice(), timer="host", options=OPTIONS)
    assert "process of its own" in note_text(found.notes[-1])
    with pytest.raises(InstrumentConflictError):
        bench_kernel(operator.add, (1, 2), device=CpuDevice(), timer=TakenTimer(), options=OPTIONS)
