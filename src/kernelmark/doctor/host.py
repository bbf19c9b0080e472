"""The host: its processor, its caches, and whether there are ceilings.

On the CPU governor, turbo, load, limits and clock are the measurement's ground. With another best device the host only
launches, and what would be a warning is a note.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kernelmark.calibration import MOST_TAKEN
from kernelmark.device.cpu_caches import cpu_caches
from kernelmark.device.cpu_facts import cpu_name, cpu_settings
from kernelmark.device.eviction import cpu_eviction_bytes
from kernelmark.device.memory import available_memory
from kernelmark.device.probe import flush_verdict
from kernelmark.doctor.machine import Finding, Machine, Severity, either, text_of
from kernelmark.errors import ProfileError
from kernelmark.records import ProbeReading
from kernelmark.roofline import find_profile
from kernelmark.units import format_bytes, format_percent, format_time

__all__ = ["caches", "ceilings", "processor"]

_FAST_CLOCKS = frozenset({"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase"})
"""Read in tens of nanoseconds from user space; the others take a system call, or a microsecond and more."""


def processor(machine: Machine) -> Iterator[Finding]:
    """Look at the processors that this process may run on."""
    grave = Severity.WARNING if machine.device is None or machine.device.kind == "cpu" else Severity.NOTE
    root, cpus = machine.root, len(machine.cpus)
    settings = cpu_settings(next(iter(machine.cpus)), root)
    yield Finding("processor", Severity.OK, f"{cpu_name(root)}, {cpus} for this process")
    governor = settings.get("governor", "not this system's to set")
    yield either(
        "CPU governor",
        governor if governor == "performance" or "governor" not in settings else None,
        grave,
        f"{governor}: the clock rises only during a measurement",
        "cpupower frequency-set --governor performance",
    )
    if settings.get("no_turbo") == "0" or settings.get("boost") == "1":
        fix = (
            "where times of different days must compare, switch it off:"
            " echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo, or echo 0 > /sys/devices/system/cpu/cpufreq/boost"
        )
        yield Finding("turbo", Severity.NOTE, "on: the clock follows load and heat", fix)
    elif settings.get("no_turbo") == "1" or settings.get("boost") == "0":
        yield Finding("turbo", Severity.OK, "off")
    if "virtual_machine" in settings:
        fix = "for times of the hardware itself, measure on it; ratios hold here too"
        yield Finding("virtual machine", Severity.NOTE, settings["virtual_machine"], fix)
    taken = machine.taken_by_others
    if taken is None:
        yield Finding("load", Severity.NOTE, "this system does not count it", "see that nothing else runs")
    else:
        found = f"other processes take {format_percent(taken)} of the processors"
        fix = "end them (top lists them), measure with fewer threads (OMP_NUM_THREADS=1), or later"
        yield either("load", found if taken <= MOST_TAKEN else None, grave, found, fix)
    if machine.torch is not None:
        threads = machine.torch.threads
        found = f"torch uses {threads} on {cpus} processors"
        well = found if threads <= cpus else None
        yield either(
            "threads", well, grave, f"{found}: they wait for each other", f"set OMP_NUM_THREADS={cpus}"
        )
    limit = _cgroup_cpus(root)
    if limit is not None and limit < cpus:  # past it the process stands still until the next period
        found = f"a container's limit of {limit:g} processors' time, with {cpus} to run on"
        fix = "give the container whole processors (--cpuset-cpus) rather than a share of time (--cpus)"
        yield Finding("CPU quota", grave, f"{found}: the process is stopped when it is used up", fix)
    folder = root / "sys/devices/system/clocksource/clocksource0"
    if source := text_of(folder / "current_clocksource"):
        others = text_of(folder / "available_clocksource") or source
        fix = f"boot with clocksource=tsc, if the machine has it (it offers: {others})"
        found = f"{source}: each reading takes a system call or more"
        yield either("host clock", source if source in _FAST_CLOCKS else None, grave, found, fix)


def _cgroup_cpus(root: Path) -> float | None:
    parts = text_of(root / "sys/fs/cgroup/cpu.max").split()
    if not parts:
        folder = root / "sys/fs/cgroup/cpu"
        parts = [text_of(folder / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):  # "max", -1, or not there
        return None
    return int(parts[0]) / int(parts[1])


_LARGEST_SHARE = 4  # a CPU's flush is refused beyond this part of the free memory


def caches(machine: Machine) -> Iterator[Finding]:
    """Look at the caches of the best device, and at the memory that a flush of them takes."""
    if machine.device is None or machine.device.kind == "cpu":
        yield from _of_cpu(machine)
    else:
        fix = "none is needed: 512 MiB are read, more than any cache that is sold"
        sizes = _sizes(machine.device.cache_bytes)
        yield either("cache sizes", sizes, Severity.NOTE, "torch tells none of this device", fix)
    reading = machine.probe
    if isinstance(reading, ProbeReading):
        cold, warm = format_time(reading.cold_ns, 3), format_time(reading.warm_ns, 3)
        well = f"{format_bytes(reading.size_bytes)} read in {cold} after a flush, in {warm} without"
        doubt, fix = flush_verdict(reading), "examine again on a quiet machine; else time warm"
        yield either("cold is cold", None if doubt else well, Severity.WARNING, doubt, fix)
    elif reading:
        fix = "time with a warm cache (--kernelmark-cache warm), or mend what the message names"
        yield Finding("cold is cold", Severity.WARNING, reading, fix)


def _of_cpu(machine: Machine) -> Iterator[Finding]:
    caches = cpu_caches(machine.cpus, root=machine.root)
    last = f"; the last level in all {format_bytes(caches.last_level)} ({caches.source})"
    well = _sizes(caches.by_level) + last if caches.by_level else None
    fix = "if the caches are larger, time with a warm cache, or let the system show /sys/devices/system/cpu"
    yield either("cache sizes", well, Severity.WARNING, caches.source, fix)
    size, free = cpu_eviction_bytes(caches), available_memory(machine.root)
    if free is not None:
        found = f"{format_bytes(size)} to evict the caches, {format_bytes(free)} of memory free"
        fix = f"free memory until {format_bytes(_LARGEST_SHARE * size)} are left, or time with a warm cache"
        enough = size <= free // _LARGEST_SHARE
        yield either("memory to flush with", found if enough else None, Severity.WARNING, found, fix)


def _sizes(by_level: dict[str, int]) -> str:
    return ", ".join(f"{level} {format_bytes(size)}" for level, size in by_level.items())


def ceilings(machine: Machine) -> Iterator[Finding]:
    """Look for the profile that rows on the best device would be related to."""
    if machine.device is None:
        return
    try:
        profile = find_profile(machine.device)
    except ProfileError as error:
        fix = "mend or delete the file; kernelmark calibrate writes this machine's own anew"
        yield Finding("ceilings", Severity.WARNING, str(error), fix)
        return
    measured = f", measured {profile.calibration.date}" if profile and profile.calibration else ""
    found = "no profile: a share of what the device can do is left blank, or measured in the first run"
    well = f"{profile.name}{measured}" if profile else None
    yield either("ceilings", well, Severity.NOTE, found, "kernelmark calibrate")
