"""Device events on a real accelerator."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch

from kernelmark.device import open_device
from kernelmark.report.notes import note_text
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
    assert "device_events:" in note_text(found.notes[0])


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
    assert "until the device has finished" in note_text(host.notes[0])


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


# --- behind a sleep ---------------------------------------------------------------------------------


def _slow_host(us: float) -> None:
    end = time.perf_counter_ns() + us * 1000
    while time.perf_counter_ns() < end:
        pass


def test_what_the_host_takes_to_launch_is_hidden_and_the_note_says_how(device) -> None:
    target, source = _copy(16)

    def slow() -> None:
        _slow_host(200)
        target.copy_(source)

    plain = bench_kernel(target.copy_, (source,), device=device, timer="device_events")
    hidden = bench_kernel(slow, device=device, timer="device_events")
    assert hidden.device_busy.median_ns < plain.device_busy.median_ns + 20_000
    assert hidden.device_busy.p90_ns < plain.device_busy.median_ns + 50_000
    assert "is hidden behind a sleep of" in note_text(hidden.notes[1])


def test_many_small_kernels_are_launched_before_the_first_of_them_runs(device) -> None:
    x = torch.ones(256, device="cuda")

    def twenty() -> None:
        for _ in range(20):
            x.add_(1)

    found = bench_kernel(twenty, device=device, timer="device_events")
    assert found.device_busy.median_ns < 80_000, "20 launches of 4 µs and more each would be the host's time"


def test_a_call_that_waits_for_the_device_ends_and_does_not_hold_the_sleep(device) -> None:
    x = torch.ones(1 << 20, device="cuda")
    found = bench_kernel(lambda: x.sum().item(), device=device, timer="device_events")
    assert "waits for the device by itself" in note_text(found.notes[1])
    assert found.device_busy.median_ns < 150_000


def test_a_call_on_a_stream_that_does_not_wait_is_refused(device) -> None:
    from kernelmark.errors import TimingError

    side, (target, source) = torch.cuda.Stream(), _copy(256)

    def early() -> None:
        with torch.cuda.stream(side):
            target.copy_(source)
        torch.cuda.current_stream().wait_stream(side)

    with pytest.raises(TimingError, match=r"wait_stream\(current\)"):
        bench_kernel(early, device=device, timer="device_events")


def test_the_sleep_is_as_long_as_it_was_asked_for(device) -> None:
    from kernelmark.timing.timers.hiding import open_cuda_sleep

    where = torch.device("cuda:0")
    stream = torch.accelerator.current_stream(where)
    start, end = (torch.Event(device=where, enable_timing=True) for _ in range(2))
    sleep = open_cuda_sleep(device, lambda: torch.Event(device=where, enable_timing=True), lambda: stream)
    assert sleep is not None
    start.record(stream)
    sleep(1_000_000)()
    end.record(stream)
    device.synchronize()
    assert start.elapsed_time(end) == pytest.approx(1, rel=0.1)
