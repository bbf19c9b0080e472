"""One callable, alone."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from kernelmark.device import FakeDevice
from kernelmark.errors import UsageError
from kernelmark.timing import Budget, TimingOptions, bench_kernel
from kernelmark.timing.timers.host import HostTimer

SMALL = TimingOptions(budget=Budget(warmup_ms=1, sample_ms=2, min_count=4, max_count=20), cache="warm")


@pytest.mark.spec("T34")
def test_a_torch_call_is_timed_on_the_cpu_with_no_case_around_it() -> None:
    x = torch.randn(64, 64)
    found = bench_kernel(torch.softmax, (x, -1), device="cpu", options=SMALL)
    assert (found.timer, found.cache) == ("host", "warm")
    assert 0 < found.device_busy.min_ns <= found.device_busy.median_ns
    assert found.device_busy.samples == sum(len(each.latency_ns) for each in found.passes)
    assert found.instrument_empty_ns is not None
    assert found.instrument_empty_ns < found.latency.median_ns


@pytest.mark.spec("T34", "T29")
def test_a_reset_runs_before_every_call_so_that_an_in_place_call_starts_anew() -> None:
    start = torch.ones(16)
    x = start.clone()
    seen = []

    def double() -> torch.Tensor:
        seen.append(x[0].item())
        return x.mul_(2)

    bench_kernel(double, reset=lambda: x.copy_(start), device="cpu", options=SMALL)
    assert set(seen) == {1.0}


def test_a_device_and_a_timer_may_be_given_as_objects() -> None:
    device = FakeDevice()

    def run(ns: int) -> None:
        device.clock.advance(ns)

    found = bench_kernel(run, (500,), device=device, timer=HostTimer(device.clock), options=SMALL)
    assert found.device_busy.median_ns == 500


def test_an_unknown_timer_is_refused_before_the_call_runs() -> None:
    calls = []
    with pytest.raises(UsageError, match="no timer 'hots'"):
        bench_kernel(lambda: calls.append(1), device=FakeDevice(), timer="hots")
    assert calls == []


def test_the_timing_package_needs_no_torch_until_a_device_is_opened() -> None:
    code = "import sys, kernelmark.timing, kernelmark.stats; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_benchmarks_of_this_repository_export_the_same_function() -> None:
    from benchmarks import timing

    assert timing.bench_kernel is bench_kernel
    assert set(timing.__all__) <= set(dir(timing))


def test_arguments_that_are_no_tuple_are_refused_by_their_type_and_not_taken_apart() -> None:
    with pytest.raises(
        UsageError, match=r"args must be a tuple, got Tensor; for one argument write args=\(x,\)"
    ):
        bench_kernel(torch.neg, torch.ones(64, 4), device="cpu")  # type: ignore[arg-type]
