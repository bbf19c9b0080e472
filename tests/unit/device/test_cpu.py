"""The CPU is a device like any other: described, flushed by the size of its caches, read between passes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from kernelmark.device import CpuDevice, Device
from kernelmark.errors import UnavailableError


@pytest.fixture(scope="module")
def device() -> CpuDevice:
    return CpuDevice()


def small_machine(root: Path, *, available_kb: int) -> Path:
    folder = root / "sys/devices/system/cpu/cpu{cpu}/cache/index0"
    for cpu in range(os.cpu_count() or 1):
        here = Path(str(folder).format(cpu=cpu))
        here.mkdir(parents=True)
        for name, text in {"level": "2", "type": "Unified", "size": "2M", "shared_cpu_list": "0-999"}.items():
            (here / name).write_text(text)
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(f"MemAvailable: {available_kb} kB\n")
    return root


def test_it_is_a_device_with_the_host_timer(device: CpuDevice) -> None:
    assert isinstance(device, Device)
    assert (device.kind, device.torch_name, device.default_timer) == ("cpu", "cpu", "host")


def test_threads_affinity_caches_and_memory_are_recorded(device: CpuDevice) -> None:
    record = device.describe()
    assert record.name
    assert record.threads == torch.get_num_threads()
    assert record.cores == os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        assert set(record.affinity or ()) == os.sched_getaffinity(0)
    assert record.last_level_cache_bytes == device.caches.last_level
    assert record.cache_bytes == device.caches.by_level
    assert record.details["caches_from"]
    assert record.details["eviction"].startswith("reads ")


def test_the_number_of_threads_is_the_one_at_the_time_of_asking(device: CpuDevice) -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert device.describe().threads == 1
    finally:
        torch.set_num_threads(threads)


def test_a_machine_that_tells_no_cache_size_says_what_was_assumed(tmp_path: Path) -> None:
    record = CpuDevice(root=tmp_path).describe()
    assert record.last_level_cache_bytes == 32 << 20
    assert record.details["caches_from"].startswith("assumed 32 MiB")


def test_telemetry_has_the_load_and_names_no_process(device: CpuDevice) -> None:
    reading = device.telemetry()
    assert reading.load_average is None or reading.load_average >= 0
    assert reading.other_processes == ()


def test_the_flusher_is_made_once_and_reads_what_the_caches_ask_for(tmp_path: Path) -> None:
    device = CpuDevice(root=small_machine(tmp_path, available_kb=1 << 20))
    flusher = device.flusher()
    assert flusher.size_bytes == 4 << 20
    assert device.flusher() is flusher
    flusher()
    device.synchronize()
    device.release_memory()


def test_a_flush_that_would_take_too_much_memory_is_refused_with_the_way_out(tmp_path: Path) -> None:
    device = CpuDevice(root=small_machine(tmp_path, available_kb=15 << 10))
    with pytest.raises(UnavailableError, match=r"4\.00 MiB.*quarter.*15\.0 MiB.*warm cache"):
        device.flusher()
