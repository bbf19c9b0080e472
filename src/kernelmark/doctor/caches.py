"""Caches: how large they are, whether they can be made cold, and whether they then are."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmark.device.cpu_caches import cpu_caches
from kernelmark.device.eviction import cpu_eviction_bytes
from kernelmark.device.memory import available_memory
from kernelmark.device.probe import flush_verdict
from kernelmark.doctor.finding import Finding, Severity
from kernelmark.doctor.machine import Machine
from kernelmark.records import ProbeReading
from kernelmark.units import format_bytes, format_time

__all__ = ["findings"]

_LARGEST_SHARE = 4  # a CPU's flush is refused beyond this part of the free memory


def findings(machine: Machine) -> Iterator[Finding]:
    """Look at the caches of the best device, and at the memory that a flush of them takes."""
    if machine.device is None or machine.device.kind == "cpu":
        yield from _cpu(machine)
    elif machine.device.cache_bytes:
        yield Finding("cache sizes", Severity.OK, _sizes(machine.device.cache_bytes))
    else:
        fix = "none is needed: 512 MiB are read, more than any cache that is sold"
        yield Finding("cache sizes", Severity.NOTE, "torch tells none of this device", fix)
    yield from _probe(machine.probe)


def _cpu(machine: Machine) -> Iterator[Finding]:
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


def _probe(reading: ProbeReading | str) -> Iterator[Finding]:
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
