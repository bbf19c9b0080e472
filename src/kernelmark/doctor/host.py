"""The host: its processor, its caches, and whether there are ceilings.

On the CPU governor, turbo, load, limits and clock are the measurement"s ground. With another best device the host only
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
from kernelmark.doctor.finding import Finding, Severity
from kernelmark.doctor.machine import Machine
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
    settings = cpu_settings(next(iter(machine.cpus)), machine.root)
    name = cpu_name(machine.root)
    yield Finding("processor", Severity.OK, f"{name}, {len(machine.cpus)} for this process")
    yield _governor(settings, grave)
    yield from _turbo(settings)
    if "virtual_machine" in settings:
        fix = "for times of the hardware itself, measure on it; ratios hold here too"
        yield Finding("virtual machine", Severity.NOTE, settings["virtual_machine"], fix)
    yield _load(machine.taken_by_others, grave)
    yield from _threads(machine, grave)
    yield from _quota(machine, grave)
    yield from _clock(machine.root, grave)


def _governor(settings: dict[str, str], grave: Severity) -> Finding:
    governor = settings.get("governor")
    if governor is None:
        return Finding("CPU governor", Severity.OK, "not this system's to set")
    if governor == "performance":
        return Finding("CPU governor", Severity.OK, governor)
    fix = "cpupower frequency-set --governor performance"
    return Finding("CPU governor", grave, f"{governor}: the clock rises only during a measurement", fix)


def _turbo(settings: dict[str, str]) -> Iterator[Finding]:
    on = settings.get("no_turbo") == "0" or settings.get("boost") == "1"
    off = settings.get("no_turbo") == "1" or settings.get("boost") == "0"
    if on:
        fix = (
            "where times of different days must compare, switch it off:"
            " echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo, or echo 0 > /sys/devices/system/cpu/cpufreq/boost"
        )
        yield Finding("turbo", Severity.NOTE, "on: the clock follows load and heat", fix)
    elif off:
        yield Finding("turbo", Severity.OK, "off")


def _load(taken: float | None, grave: Severity) -> Finding:
    if taken is None:
        return Finding("load", Severity.NOTE, "this system does not count it", "see that nothing else runs")
    found = f"other processes take {format_percent(taken)} of the processors"
    if taken <= MOST_TAKEN:
        return Finding("load", Severity.OK, found)
    return Finding(
        "load",
        grave,
        found,
        "end them (top lists them), measure with fewer threads (OMP_NUM_THREADS=1), or later",
    )


def _threads(machine: Machine, grave: Severity) -> Iterator[Finding]:
    if machine.torch is None:
        return
    threads, cpus = machine.torch.threads, len(machine.cpus)
    found = f"torch uses {threads} on {cpus} processors"
    if threads > cpus:
        yield Finding("threads", grave, f"{found}: they wait for each other", f"set OMP_NUM_THREADS={cpus}")
    else:
        yield Finding("threads", Severity.OK, found)


def _quota(machine: Machine, grave: Severity) -> Iterator[Finding]:
    """Look for a limit of a container on processor time: past it the process stands still until the next period."""
    limit = _cgroup_cpus(machine.root)
    if limit is not None and limit < len(machine.cpus):
        found = f"a container's limit of {limit:g} processors' time, with {len(machine.cpus)} to run on"
        fix = "give the container whole processors (--cpuset-cpus) rather than a share of time (--cpus)"
        yield Finding("CPU quota", grave, f"{found}: the process is stopped when it is used up", fix)


def _cgroup_cpus(root: Path) -> float | None:
    parts = _read(root / "sys/fs/cgroup/cpu.max").split()
    if not parts:
        parts = [
            _read(root / "sys/fs/cgroup/cpu" / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        ]
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):  # "max", -1, or not there
        return None
    return int(parts[0]) / int(parts[1])


def _clock(root: Path, grave: Severity) -> Iterator[Finding]:
    folder = root / "sys/devices/system/clocksource/clocksource0"
    source = _read(folder / "current_clocksource")
    if not source:
        return
    if source in _FAST_CLOCKS:
        yield Finding("host clock", Severity.OK, source)
        return
    others = _read(folder / "available_clocksource")
    fix = f"boot with clocksource=tsc, if the machine has it (it offers: {others or source})"
    yield Finding("host clock", grave, f"{source}: each reading takes a system call or more", fix)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


_LARGEST_SHARE = 4  # a CPU's flush is refused beyond this part of the free memory


def caches(machine: Machine) -> Iterator[Finding]:
    """Look at the caches of the best device, and at the memory that a flush of them takes."""
    if machine.device is None or machine.device.kind == "cpu":
        yield from _of_cpu(machine)
    elif machine.device.cache_bytes:
        yield Finding("cache sizes", Severity.OK, _sizes(machine.device.cache_bytes))
    else:
        fix = "none is needed: 512 MiB are read, more than any cache that is sold"
        yield Finding("cache sizes", Severity.NOTE, "torch tells none of this device", fix)
    yield from _cold(machine.probe)


def _of_cpu(machine: Machine) -> Iterator[Finding]:
    caches = cpu_caches(machine.cpus, root=machine.root)
    if caches.by_level:
        last = f"; the last level in all {format_bytes(caches.last_level)} ({caches.source})"
        yield Finding("cache sizes", Severity.OK, _sizes(caches.by_level) + last)
    else:
        fix = (
            "if the caches are larger, time with a warm cache, or let the system show /sys/devices/system/cpu"
        )
        yield Finding("cache sizes", Severity.WARNING, caches.source, fix)
    size, free = cpu_eviction_bytes(caches), available_memory(machine.root)
    if free is None:
        return
    found = f"{format_bytes(size)} to evict the caches, {format_bytes(free)} of memory free"
    if size > free // _LARGEST_SHARE:
        fix = f"free memory until {format_bytes(_LARGEST_SHARE * size)} are left, or time with a warm cache"
        yield Finding("memory to flush with", Severity.WARNING, found, fix)
    else:
        yield Finding("memory to flush with", Severity.OK, found)


def _cold(reading: ProbeReading | str) -> Iterator[Finding]:
    if isinstance(reading, str):
        if reading:
            fix = "time with a warm cache (--kernelmark-cache warm), or mend what the message names"
            yield Finding("cold is cold", Severity.WARNING, reading, fix)
        return
    doubt = flush_verdict(reading)
    if doubt:
        yield Finding(
            "cold is cold", Severity.WARNING, doubt, "examine again on a quiet machine; else time warm"
        )
        return
    cold, warm = format_time(reading.cold_ns, 3), format_time(reading.warm_ns, 3)
    size = format_bytes(reading.size_bytes)
    yield Finding("cold is cold", Severity.OK, f"{size} read in {cold} after a flush, in {warm} without")


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
    if profile is None:
        found = "no profile: a share of what the device can do is left blank, or measured in the first run"
        yield Finding("ceilings", Severity.NOTE, found, "kernelmark calibrate")
        return
    measured = f", measured {profile.calibration.date}" if profile.calibration else ""
    yield Finding("ceilings", Severity.OK, f"{profile.name}{measured}")
