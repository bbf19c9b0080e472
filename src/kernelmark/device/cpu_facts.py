"""What the system says of its processor: name, clock, settings that change speed. Reads, decides nothing."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Collection
from pathlib import Path

__all__ = [
    "available_cpus",
    "busy_seconds",
    "clock_mhz",
    "cpu_flags",
    "cpu_name",
    "cpu_settings",
    "physical_cores",
]

# What a reader of a CPU time wants to know, and the file that says it.
_SETTINGS = {
    "governor": "sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor",
    "frequency_driver": "sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_driver",
    "no_turbo": "sys/devices/system/cpu/intel_pstate/no_turbo",
    "boost": "sys/devices/system/cpu/cpufreq/boost",
    "smt_active": "sys/devices/system/cpu/smt/active",
    "numa_nodes": "sys/devices/system/node/online",
    "isolated_cpus": "sys/devices/system/cpu/isolated",
    "transparent_hugepages": "sys/kernel/mm/transparent_hugepage/enabled",
}

# One processor's block fits. The file is made as it is read; all of it takes milliseconds on a large server.
_CPUINFO_BYTES = 8192
_CLOCKS_READ = 4  # enough for a mean; each is a system call


def available_cpus() -> tuple[int, ...]:
    """Give the processors that this process may run on; all of them where the system has no affinity."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cpu_name(root: Path = Path("/")) -> str:
    """Give the processor's name as the kernel has it, or the nearest thing that the system has."""
    text = _cpuinfo(root)
    for pattern in (r"^model name\s*:\s*(.+)$", r"^Model\s*:\s*(.+)$", r"^cpu\s*:\s*(.+)$"):
        match = re.search(pattern, text, re.MULTILINE)
        if match:
            return " ".join(match[1].split())
    arm = [re.search(rf"^CPU {part}\s*:\s*(\S+)$", text, re.MULTILINE) for part in ("implementer", "part")]
    if all(arm):
        return f"Arm implementer {arm[0][1]} part {arm[1][1]}"  # type: ignore[index]
    return platform.processor() or platform.machine() or "unknown CPU"


def cpu_flags(root: Path = Path("/")) -> frozenset[str]:
    """Give the instruction sets that the kernel lists, in its words (``avx2``, ``asimd``); nothing elsewhere."""
    match = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", _cpuinfo(root), re.MULTILINE)
    return frozenset(match[1].split()) if match else frozenset()


def physical_cores(cpus: Collection[int], root: Path = Path("/")) -> int:
    """Count the cores behind ``cpus``: hardware threads of one core count once, where the system tells them."""
    siblings = [
        _read(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu)
        for cpu in cpus
    ]
    return max(1, len(set(siblings)))


def clock_mhz(cpus: Collection[int], root: Path = Path("/")) -> float | None:
    """Read the clock now, as the mean of a few of ``cpus``; ``None`` where the system does not say."""
    readings = []
    for cpu in list(cpus)[:_CLOCKS_READ]:
        khz = _read(root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq")
        if khz.isdecimal():
            readings.append(int(khz) / 1000)
    if readings:
        return sum(readings) / len(readings)
    match = re.search(r"^cpu MHz\s*:\s*([0-9.]+)$", _cpuinfo(root), re.MULTILINE)
    return float(match[1]) if match else None


def busy_seconds(cpus: Collection[int], root: Path = Path("/")) -> float | None:
    """Give the time that ``cpus`` have worked since the machine started, for whichever process.

    Time that a hypervisor took away counts as worked, by somebody else. In steps of 10 ms a processor.
    """
    lines = _read(root / "proc/stat").splitlines()
    ticks = {name: fields for name, *fields in map(str.split, lines) if name.startswith("cpu")}
    rows = [ticks[f"cpu{cpu}"] for cpu in cpus if f"cpu{cpu}" in ticks]
    if len(rows) < len(cpus) or not rows:
        return None
    # user nice system idle iowait irq softirq steal; the guest columns after them are in user and nice too.
    worked = sum(int(row[column]) for row in rows for column in (0, 1, 2, 5, 6, 7) if column < len(row))
    return worked / os.sysconf("SC_CLK_TCK")


def cpu_settings(cpu: int, root: Path = Path("/")) -> dict[str, str]:
    """Read the settings that change how fast this machine is; those it does not have are left out."""
    found = {name: _read(root / path.format(cpu=cpu)) for name, path in _SETTINGS.items()}
    settings = {name: _chosen(value) for name, value in found.items() if value}
    if re.search(r"^flags\s*:.*\bhypervisor\b", _cpuinfo(root), re.MULTILINE):
        settings["virtual_machine"] = "yes: cache sizes and clock are what the hypervisor reports"
    return settings


def _chosen(text: str) -> str:
    """Of a list such as ``always [madvise] never``, give the choice that is in force."""
    match = re.search(r"\[(.+)\]", text)
    return match[1] if match else text


def _cpuinfo(root: Path) -> str:
    try:
        with open(root / "proc/cpuinfo", "rb", buffering=0) as file:
            return file.read(_CPUINFO_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:  # absent, or there and refusing to be read, as scaling_cur_freq does on some machines
        return ""
