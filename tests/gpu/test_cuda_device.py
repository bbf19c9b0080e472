"""On a CUDA device: the flush evicts with one reading kernel, persisting lines do not survive it, NVML speaks."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernelmark.device import (
    AcceleratorDevice,
    CudaDevice,
    Device,
    flush_verdict,
    is_out_of_memory,
    measure_probe,
    open_device,
    probe_verdict,
)
from kernelmark.device import probe as probe_module
from kernelmark.device.eviction import ReadFlusher
from kernelmark.records import Cache
from kernelmark.roofline import find_profile

pytestmark = pytest.mark.gpu

MIB = 1 << 20


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice(0)


class _NoFlush:
    size_bytes = 0

    def __call__(self) -> None:
        """Evict nothing."""


def test_it_is_the_best_device_here(device: CudaDevice) -> None:
    assert isinstance(device, Device)
    best = open_device(None)
    assert (best.kind, best.torch_name, best.default_timer) == ("cuda", "cuda:0", device.default_timer)


def test_it_is_described(device: CudaDevice) -> None:
    record = device.describe()
    found = torch.cuda.get_device_properties(0)
    assert record.name == found.name
    assert record.cache_bytes == {"L2": found.L2_cache_size}
    assert record.memory_bytes == found.total_memory
    assert record.cores == found.multi_processor_count
    assert record.capability == f"{found.major}.{found.minor}"
    assert record.details["persisting_l2"] == "reset each round"


def test_a_device_that_is_known_has_a_profile(
    device: CudaDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a calibration of this machine would come first
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    record = device.describe()
    profile = find_profile(record)
    if record.name == "NVIDIA H200":
        assert profile is not None
        assert profile.name == "NVIDIA H200 SXM"


@pytest.mark.spec("T29")
def test_after_the_flush_a_read_is_cold(device: CudaDevice) -> None:
    reading = measure_probe(device)
    assert reading.ratio > 1.5, reading
    assert flush_verdict(reading) == ""
    assert reading.flush_bytes >= 2 * torch.cuda.get_device_properties(0).L2_cache_size


@pytest.mark.spec("T29")
def test_with_warm_caches_a_second_read_is_faster(device: CudaDevice) -> None:
    reading = measure_probe(device, cache=Cache.WARM)
    assert reading.ratio > 1.3, reading
    assert probe_verdict(reading, Cache.WARM) == ""


@pytest.mark.spec("T29")
def test_a_flush_that_evicts_nothing_is_found_out(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "flusher", _NoFlush)
    reading = measure_probe(device)
    assert reading.ratio < 1.2, reading
    assert "evicts nothing" in flush_verdict(reading)


@pytest.mark.spec("T29")
def test_a_flush_of_half_the_cache_is_found_out(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    half = ReadFlusher("cuda:0", torch.cuda.get_device_properties(0).L2_cache_size // 2)
    monkeypatch.setattr(device, "flusher", lambda: half)
    assert flush_verdict(measure_probe(device))


_COUNT_KERNELS = """
import torch
from torch.profiler import ProfilerActivity, profile
from kernelmark.device import CudaDevice
device = CudaDevice(0)
flush = device.flusher()
flush()
device.synchronize()
with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as session:
    flush()
    device.synchronize()
for event in session.events():
    if event.device_type == torch.autograd.DeviceType.CUDA:
        print(event.name)
"""


def test_a_flush_is_one_kernel_and_nothing_else() -> None:
    """In a process of its own: after torch's profiler, CUPTI gives no other profiler its records."""
    done = subprocess.run([sys.executable, "-c", _COUNT_KERNELS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = done.stdout.splitlines()
    assert len(names) == 1, names
    assert "reduce" in names[0]


def test_a_flush_allocates_nothing(device: CudaDevice) -> None:
    flush = device.flusher()
    flush()
    before = torch.cuda.memory_stats(0)["allocation.all.allocated"]
    for _ in range(5):
        flush()
    assert torch.cuda.memory_stats(0)["allocation.all.allocated"] == before
    assert device.flusher() is flush


def test_a_flush_can_be_captured_in_a_graph(device: CudaDevice) -> None:
    flush = device.flusher()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        flush()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        flush()
    flush._sums.zero_()
    graph.replay()
    device.synchronize()
    assert int(flush._sums.sum()) == flush.size_bytes // 8


# --- persisting lines -----------------------------------------------------------------------------


class _Window(ctypes.Structure):
    """CUaccessPolicyWindow, in the 64 bytes of a stream attribute's value."""

    _fields_ = (
        ("base", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("hit_ratio", ctypes.c_float),
        ("hit", ctypes.c_int),
        ("miss", ctypes.c_int),
        ("rest", ctypes.c_char * 36),
    )


_PERSISTING, _NORMAL, _WINDOW_ATTRIBUTE, _LIMIT = 2, 0, 1, 6


@pytest.fixture
def persisting_read() -> Iterator[tuple[torch.cuda.Stream, object]]:
    """Give a stream on which the probe's data persist in L2, and the probe's read of them."""
    driver = ctypes.CDLL("libcuda.so.1")
    before = ctypes.c_size_t()
    assert driver.cuCtxGetLimit(ctypes.byref(before), _LIMIT) == 0
    assert driver.cuCtxSetLimit(_LIMIT, ctypes.c_size_t(32 * MIB)) == 0
    stream = torch.cuda.Stream()
    values = torch.ones((512, 2048), device="cuda:0")
    sums = torch.empty_like(values)
    window = _Window(values.data_ptr(), values.nbytes, 1.0, _PERSISTING, _NORMAL)
    handle = ctypes.c_void_p(stream.cuda_stream)
    assert driver.cuStreamSetAttribute(handle, _WINDOW_ATTRIBUTE, ctypes.byref(window)) == 0
    try:
        with torch.cuda.stream(stream):
            yield stream, lambda: torch.cumsum(values, 0, out=sums)
    finally:
        torch.cuda.synchronize()
        driver.cuCtxResetPersistingL2Cache()
        driver.cuCtxSetLimit(_LIMIT, before)


def _ratio(stream: torch.cuda.Stream, read: object, flush: object) -> float:
    events = [torch.Event(device="cuda:0", enable_timing=True) for _ in range(5)]
    synchronize = torch.cuda.synchronize
    rounds = [
        probe_module._one_by_events(events, stream, read, flush, synchronize)  # type: ignore[arg-type]
        for _ in range(11)
    ]
    cold, warm = (sorted(getattr(one, name) for one in rounds)[5] for name in ("cold", "warm"))
    return cold / warm


@pytest.mark.spec("T29")
def test_lines_that_persist_do_not_survive_the_flush(
    device: CudaDevice, persisting_read: tuple[torch.cuda.Stream, object]
) -> None:
    """Without the reset they do, which shows that the reset is what evicts them."""
    stream, read = persisting_read
    flush = device.flusher()
    without_reset = ReadFlusher("cuda:0", flush.size_bytes)
    kept, evicted = _ratio(stream, read, without_reset), _ratio(stream, read, flush)
    print(f"ratio without reset {kept:.3f}, with reset {evicted:.3f}")
    assert evicted > 1.5
    assert kept < 0.9 * evicted


# --- telemetry, memory, errors --------------------------------------------------------------------


def test_nvml_reads_the_device_that_torch_means(device: CudaDevice) -> None:
    pytest.importorskip("pynvml", reason="needs nvidia-ml-py (pip install 'kernelmark[cuda]')")
    reading = device.telemetry()
    assert "telemetry" not in device.describe().details
    assert device.describe().driver
    assert reading.clock_mhz
    assert reading.memory_clock_mhz
    assert reading.power_w
    assert reading.temperature_c
    assert f"pid {os.getpid()}" not in reading.other_processes


def test_out_of_memory_is_recognised_and_the_device_goes_on(device: CudaDevice) -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(1 << 48, dtype=torch.uint8, device="cuda:0")
    assert is_out_of_memory(caught.value)
    device.release_memory()
    device.synchronize()


def test_the_general_accelerator_flushes_the_same_device(device: CudaDevice) -> None:
    general = AcceleratorDevice("cuda", 0)
    reading = measure_probe(general)
    assert reading.flush_bytes == device.flusher().size_bytes
    assert reading.ratio > 1.5, reading
    assert general.describe().last_level_cache_bytes == device.describe().last_level_cache_bytes
    general.release_memory()
    general.synchronize()
