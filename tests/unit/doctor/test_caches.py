"""Cache sizes, the memory that a flush takes, and the probe's verdict."""

from __future__ import annotations

import shutil
from dataclasses import replace

from kernelmark.doctor import host
from kernelmark.doctor.machine import Machine, Severity, worst


def test_the_sizes_are_those_of_the_system(cpu_machine: Machine, by_what) -> None:
    table = by_what(host.caches(cpu_machine))
    assert worst(table.values()) is Severity.OK
    assert table["cache sizes"].found.startswith("L1d 48.0 KiB, L2 2.00 MiB, L3 32.0 MiB")
    assert table["cold is cold"].found == "128 KiB read in 80.0 µs after a flush, in 2.50 µs without"


def test_a_size_that_is_assumed_is_a_warning(cpu_machine: Machine, root, by_what) -> None:
    for cpu in (0, 1):
        shutil.rmtree(root.folder / f"sys/devices/system/cpu/cpu{cpu}/cache")
    finding = by_what(host.caches(cpu_machine))["cache sizes"]
    assert finding.severity is Severity.WARNING
    assert "assumed 32 MiB" in finding.found


def test_too_little_memory_for_the_flush_is_a_warning(cpu_machine: Machine, root, by_what) -> None:
    root.write("proc/meminfo", "MemAvailable:   102400 kB\n")
    finding = by_what(host.caches(cpu_machine))["memory to flush with"]
    assert finding.severity is Severity.WARNING
    assert "MiB are left" in finding.fix


def test_a_flush_that_evicts_nothing_and_one_that_cannot_be_had_are_warnings(
    cpu_machine: Machine, by_what
) -> None:
    assert not isinstance(cpu_machine.probe, str)
    lukewarm = cpu_machine.probe.model_copy(update={"cold_ns": 2600.0})
    for probe in (lukewarm, "a buffer of 1 GiB is more than a quarter of the memory"):
        finding = by_what(host.caches(replace(cpu_machine, probe=probe)))["cold is cold"]
        assert finding.severity is Severity.WARNING


def test_an_accelerators_cache_is_its_own(gpu_machine: Machine, by_what) -> None:
    assert by_what(host.caches(gpu_machine))["cache sizes"].found == "L2 60.0 MiB"
    assert gpu_machine.device is not None
    silent = replace(gpu_machine, device=gpu_machine.device.model_copy(update={"cache_bytes": {}}))
    assert by_what(host.caches(silent))["cache sizes"].severity is Severity.NOTE
