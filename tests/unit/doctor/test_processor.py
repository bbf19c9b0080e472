"""The host's processor, from the files of a made-up system."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmark.doctor import host
from kernelmark.doctor.machine import Machine, Severity, TorchFacts, worst

CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"
GOVERNOR = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"


def test_a_quiet_steady_machine_is_well(cpu_machine: Machine) -> None:
    assert worst(host.processor(cpu_machine)) is Severity.OK


@pytest.mark.parametrize(
    ("path", "text", "what"),
    [
        (GOVERNOR, "powersave", "CPU governor"),
        (CLOCK, "hpet", "host clock"),
        ("sys/fs/cgroup/cpu.max", "150000 100000", "CPU quota"),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000", "CPU quota"),
    ],
)
def test_what_spoils_a_cpus_time_is_a_warning_there_and_a_note_beside_a_gpu(
    cpu_machine: Machine, gpu_machine: Machine, root, by_what, path: str, text: str, what: str
) -> None:
    root.write(path, text)
    root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert by_what(host.processor(cpu_machine))[what].severity is Severity.WARNING
    assert by_what(host.processor(gpu_machine))[what].severity is Severity.NOTE


@pytest.mark.parametrize("text", ["max 100000", "200000 100000", "-1 100000"])
def test_a_limit_that_leaves_every_processor_is_none(cpu_machine: Machine, root, by_what, text: str) -> None:
    root.write("sys/fs/cgroup/cpu.max", text)
    assert "CPU quota" not in by_what(host.processor(cpu_machine))


@pytest.mark.parametrize(
    ("path", "text", "severity"),
    [
        ("sys/devices/system/cpu/intel_pstate/no_turbo", "0", Severity.NOTE),
        ("sys/devices/system/cpu/intel_pstate/no_turbo", "1", Severity.OK),
        ("sys/devices/system/cpu/cpufreq/boost", "1", Severity.NOTE),
        ("sys/devices/system/cpu/cpufreq/boost", "0", Severity.OK),
    ],
)
def test_turbo_is_told_where_the_system_tells_it(
    cpu_machine: Machine, root, by_what, path: str, text: str, severity: Severity
) -> None:
    root.write(path, text)
    assert by_what(host.processor(cpu_machine))["turbo"].severity is severity


@pytest.mark.parametrize(
    ("taken", "severity"), [(None, Severity.NOTE), (0.2, Severity.OK), (0.21, Severity.WARNING)]
)
def test_others_may_take_no_more_than_a_fifth(
    cpu_machine: Machine, by_what, taken: float | None, severity: Severity
) -> None:
    found = by_what(host.processor(replace(cpu_machine, taken_by_others=taken)))["load"]
    assert found.severity is severity
    # on two busy cores 20 of 20 intervals were wide with two threads, and none with one
    assert ("OMP_NUM_THREADS=1" in (found.fix or "")) is (severity is Severity.WARNING)


def test_more_threads_than_processors_are_a_warning(cpu_machine: Machine, by_what) -> None:
    facts = TorchFacts(version="2.11.0", threads=16)
    finding = by_what(host.processor(replace(cpu_machine, torch=facts)))["threads"]
    assert (finding.severity, finding.fix) == (Severity.WARNING, "set OMP_NUM_THREADS=2")


def test_a_virtual_machine_and_an_unknown_governor_are_no_warning(
    cpu_machine: Machine, root, by_what
) -> None:
    root.write("proc/cpuinfo", "model name\t: Example\nflags\t\t: fpu hypervisor\n")
    (root.folder / GOVERNOR).unlink()
    table = by_what(host.processor(cpu_machine))
    assert table["virtual machine"].severity is Severity.NOTE
    assert table["CPU governor"].severity is Severity.OK
