"""Device events on a real accelerator."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from kernelmark.device import open_device
from kernelmark.stats import paired_ratio
from kernelmark.timing import Call, TimingOptions, bench_kernel, block_samples, open_timer, time_together

pytestmark = pytest.mark.gpu


@pytest.fixture
def device():
    return open_device("cuda")


def _copy(megabytes: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.ones(megabytes << 18, device="cuda")
    return torch.empty_like(source), source


@pytest.mark.spec("T34")
def test_without_a_profiler_the_row_says_that_events_timed_it(device) -> None:
    target, source = _copy(64)
    found = bench_kernel(target.copy_, (source,), device=device, timer="device_events")
    assert found.timer == "device_events"
    assert found.gap_ns is None
    assert "device_events:" in found.notes[0]


def test_a_call_takes_no_less_than_the_memory_needs_for_it(device) -> None:
    target, source = _copy(512)
    found = bench_kernel(target.copy_, (source,), device=device, timer="device_events")
    bytes_moved = 2 * source.nbytes
    assert bytes_moved / found.device_busy.median_ns < 20_000, (
        "more than 20 TB/s: the call was not waited for"
    )
    assert found.device_busy.median_ns > 10 * found.instrument_empty_ns


def test_eight_times_the_work_takes_about_eight_times_as_long(device) -> None:
    calls = {str(size): Call(*_bound(size)) for size in (128, 1024)}
    found = time_together(calls, device, timer=open_timer("device_events", device))
    ratio = paired_ratio(block_samples(found["128"]), block_samples(found["1024"]))
    assert 6.5 < ratio.value < 9.5


def _bound(megabytes: int):
    target, source = _copy(megabytes)
    return target.copy_, (source,)


def test_an_empty_pair_reads_microseconds_and_not_nothing(device) -> None:
    found = bench_kernel(torch.cuda._sleep, (100_000,), device=device, timer="device_events")
    assert 0 < found.instrument_empty_ns < 50_000


@pytest.mark.spec("T29")
def test_a_costly_reset_is_not_in_the_reading(device) -> None:
    target, source = _copy(16)
    plain = bench_kernel(target.copy_, (source,), device=device, timer="device_events")

    def reset() -> None:
        torch.cuda._sleep(5_000_000)  # some 2.5 ms

    with_reset = bench_kernel(target.copy_, (source,), reset=reset, device=device, timer="device_events")
    assert with_reset.device_busy.median_ns < 2 * plain.device_busy.median_ns + 100_000


def test_work_on_a_second_device_is_timed_there() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs two CUDA devices; torch finds {torch.cuda.device_count()}")
    device = open_device("cuda:1")
    source = torch.ones(1 << 26, device="cuda:1")
    target = torch.empty_like(source)
    found = bench_kernel(target.copy_, (source,), device=device, timer="device_events")
    assert found.device_busy.median_ns > 10_000


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_the_host_timer_holds_the_wait_and_so_reads_no_less_than_the_events(device, cache: str) -> None:
    target, source = _copy(256)
    options = TimingOptions(cache=cache)
    events = bench_kernel(target.copy_, (source,), device=device, timer="device_events", options=options)
    host = bench_kernel(target.copy_, (source,), device=device, timer="host", options=options)
    assert host.latency.median_ns > 0.9 * events.latency.median_ns
    assert "until the device has finished" in host.notes[0]


def test_an_error_on_the_device_reaches_the_caller() -> None:
    # An index out of range trips an assertion on the device and spoils the process's context, so the call
    # has a process of its own.
    code = (
        "import torch\n"
        "from kernelmark.timing import bench_kernel\n"
        "x, index = torch.zeros(4, device='cuda'), torch.tensor([9], device='cuda')\n"
        "bench_kernel(x.index_select, (0, index), device='cuda', timer='device_events')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert "device-side assert" in done.stderr
