"""What a run's header says, as a short list of labelled sentences."""

from __future__ import annotations

import shlex

from kernelmark.records import Cache, DeviceRecord, Environment, ProbeReading, Protocol, StoredRun
from kernelmark.text import counted
from kernelmark.units import format_bytes, format_time, significant

__all__ = ["device_text", "probe_text", "run_facts"]

_CACHES = {
    Cache.COLD: "cold: evicted before every timed call",
    Cache.WARM: "warm: as the call before left them",
}


def run_facts(run: StoredRun) -> tuple[tuple[str, str], ...]:
    """Give label and text of everything a reader must know about how ``run`` was made."""
    header, protocol, environment = run.header, run.header.protocol, run.header.environment
    versions = {"kernelmark": environment.kernelmark, "Python": environment.python, **environment.libraries}
    facts = {
        "Device": device_text(header.device),
        "Software": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "Platform": environment.platform,
        "Revision": _revision(environment),
        "Protocol": _protocol(protocol),
    }
    if not protocol.verify_only:
        facts["Timer"] = protocol.timer
        facts["Caches"] = _CACHES[protocol.cache]
        facts["Cache probe"] = probe_text(header.probe, protocol.cache)
    facts["Run"] = header.run
    facts["Time"] = f"{header.started} to {run.end.ended}" if run.end else header.started
    facts["Command"] = shlex.join(header.command)
    return tuple((label, text) for label, text in facts.items() if text)


def device_text(device: DeviceRecord) -> str:
    """Describe a device in one line."""
    place = device.kind if device.index is None else f"{device.kind}:{device.index}"
    parts = [
        place,
        counted(device.cores, "core"),
        counted(device.threads, "thread"),
        f"capability {device.capability}" if device.capability else "",
        f"driver {device.driver}" if device.driver else "",
        f"{format_bytes(device.memory_bytes)} of memory" if device.memory_bytes else "",
        *(f"{level} {format_bytes(size)}" for level, size in device.cache_bytes.items()),
        *(f"{name} {text}" for name, text in device.details.items()),
    ]
    return f"{device.name} ({', '.join(filter(None, parts))})"


def probe_text(probe: ProbeReading | None, cache: Cache) -> str:
    """Say what shows that the caches of a run were as it declares."""
    if probe is None:
        return f"none: nothing in this run shows that {cache.value} is {cache.value}"
    size, flush = format_bytes(probe.size_bytes), format_bytes(probe.flush_bytes)
    cold, warm = format_time(probe.cold_ns), format_time(probe.warm_ns)
    if cache is Cache.WARM:
        return (
            f"reading {size} took {cold} after a flush of {flush}, and {warm} when it was read again:"
            f" {probe.ratio:.2f} times as fast"
        )
    return f"reading {size} took {warm} warm and {cold} after the flush of {flush}: {probe.ratio:.2f} times as long"


def _revision(environment: Environment) -> str:
    if environment.git_revision is None:
        return "not under git"
    state = {True: " with uncommitted changes", False: "", None: " (state unknown)"}[environment.git_dirty]
    return f"{environment.git_revision[:12]}{state}"


def _protocol(protocol: Protocol) -> str:
    if protocol.verify_only:
        return "Checks only; nothing was timed."
    turns = protocol.cooldown_s is not None
    thing, order = ("round", "turns A B C") if turns else ("block", "A B C … C B A")
    blocks = f"one {thing}" if protocol.blocks == 1 else f"{protocol.blocks} {thing}s"
    pause = f" with a pause of {significant(protocol.cooldown_s or 0, 3)} s before each" if turns else ""
    before = "its reset and a flush of the caches" if protocol.cache is Cache.COLD else "its reset"
    timed = f"Every implementation was timed in {blocks} of {order}{pause}, each timed call after {before}:"
    if protocol.max_count and protocol.min_count == protocol.max_count:
        return f"{timed} {counted(protocol.max_count, 'sample')}, whatever they cost."
    most = protocol.max_count or "as many as fit"
    return (
        f"{timed} {significant(protocol.sample_ms, 3)} ms of samples ({protocol.min_count} to {most} samples)"
        f" after {significant(protocol.warmup_ms, 3)} ms of warm-up."
    )
