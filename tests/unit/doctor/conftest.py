"""A made-up machine to examine: everything is well on it, until a test says what is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelmark.doctor.machine import Finding, Machine, TimerTrial, TorchFacts
from kernelmark.probe import Probe
from kernelmark.records import DeviceRecord, ProbeReading, Telemetry

MIB = 1 << 20
COLD = ProbeReading(size_bytes=128 << 10, warm_ns=2500.0, cold_ns=80_000.0, flush_bytes=MIB, flush_ns=1e6)
GPU_VERSIONS = {
    "cupti-python": "13.0.1",
    "nvidia-cuda-cupti": "13.0.85",
    "nvidia-ml-py": "13.580.65",
    "triton": "3.6.0",
}


class Root:
    """A folder in place of the system's root, filled file by file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, path: str, text: str = "") -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    made = Root(tmp_path / "root")
    made.write("proc/cpuinfo", "model name\t: Example CPU X1\nflags\t\t: fpu\n")
    made.write("proc/meminfo", "MemAvailable:   16777216 kB\n")
    made.write("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n")
    made.write("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm\n")
    for cpu in (0, 1):
        made.write(f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "performance\n")
        for number, (level, size) in enumerate((("1", "48K"), ("2", "2048K"), ("3", "32768K"))):
            index = f"sys/devices/system/cpu/cpu{cpu}/cache/index{number}"
            made.write(f"{index}/level", level)
            made.write(f"{index}/size", size)
            made.write(f"{index}/type", "Data" if level == "1" else "Unified")
            made.write(f"{index}/shared_cpu_list", "0-1" if level == "3" else str(cpu))
    return made


@pytest.fixture
def cpu_machine(root: Root) -> Machine:
    """Give a machine with two processors and nothing else."""
    return Machine(
        root=root.folder,
        environ={},
        version={"triton": "3.6.0"}.get,
        module=lambda name: Probe(True, f"{name} is installed"),
        program=lambda name: None,
        cpus=(0, 1),
        torch=TorchFacts(version="2.11.0+cpu", threads=2),
        device=DeviceRecord(kind="cpu", name="Example CPU X1", memory_bytes=32 << 30),
        timers=(TimerTrial("host", True, "the host's clock"),),
        probe=COLD,
        taken_by_others=0.01,
    )


@pytest.fixture
def gpu_machine(cpu_machine: Machine, root: Root) -> Machine:
    """Give a machine with one NVIDIA device on which everything works."""
    root.write(
        "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun\n"
    )
    return replace(
        cpu_machine,
        version=GPU_VERSIONS.get,
        program=lambda name: f"/opt/bin/{name}",
        torch=TorchFacts(version="2.11.0", cuda="13.0", devices=1, threads=2),
        device=DeviceRecord(
            kind="cuda",
            name="NVIDIA H200",
            memory_bytes=141 << 30,
            cache_bytes={"L2": 60 * MIB},
            driver="580.65.06",
            details={"persisting_l2": "reset each round"},
        ),
        telemetry=Telemetry(clock_mhz=1980.0),
        timers=(
            TimerTrial("cupti", True, "the device's own records"),
            TimerTrial("device_events", False, "a pair of events"),
        ),
        driver_cuda=(13, 0),
    )


@pytest.fixture(autouse=True)
def _no_profiles_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("KERNELMARK_PROFILES", raising=False)


@pytest.fixture
def by_what() -> Callable[[Any], Mapping[str, Finding]]:
    """Give what turns findings into a table by what was looked at."""
    return lambda findings: {finding.what: finding for finding in findings}
