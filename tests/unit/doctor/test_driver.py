"""The driver against torch's toolkit, and what its counters ask for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmark.doctor import nvidia
from kernelmark.doctor.machine import Machine, Severity, TorchFacts, worst


def test_without_an_nvidia_device_nothing_is_missed(cpu_machine: Machine) -> None:
    (finding,) = nvidia.driver(cpu_machine)
    assert finding.severity is Severity.OK


@pytest.mark.parametrize(
    ("toolkit", "runs", "severity"),
    [
        ("13.0", (13, 0), Severity.OK),
        ("12.8", (13, 0), Severity.OK),
        ("13.1", (13, 0), Severity.NOTE),
        ("13.0", (12, 8), Severity.MISSING),
        ("13.0", None, Severity.MISSING),
    ],
)
def test_a_driver_runs_its_own_cuda_and_older_ones(
    gpu_machine: Machine, by_what, toolkit: str, runs: tuple[int, int] | None, severity: Severity
) -> None:
    facts = TorchFacts(version="2.11.0", cuda=toolkit, devices=1)
    finding = by_what(nvidia.driver(replace(gpu_machine, torch=facts, driver_cuda=runs)))["NVIDIA driver"]
    assert finding.severity is severity
    assert "580.65.06" in finding.found


@pytest.mark.parametrize(("only", "severity"), [("1", Severity.NOTE), ("0", Severity.OK)])
def test_counters_for_root_alone_are_told(
    gpu_machine: Machine, root, by_what, only: str, severity: Severity
) -> None:
    root.write("proc/driver/nvidia/params", f"EnableMSI: 1\nRmProfilingAdminOnly: {only}\nModify: 0\n")
    assert by_what(nvidia.driver(gpu_machine))["performance counters"].severity is severity


def test_ncu_is_found_or_told_and_never_more_than_a_note(gpu_machine: Machine, by_what) -> None:
    assert by_what(nvidia.driver(gpu_machine))["ncu"].found == "/opt/bin/ncu"
    without = by_what(nvidia.driver(replace(gpu_machine, program=lambda name: None)))
    assert without["ncu"].severity is Severity.NOTE
    assert worst(without.values()) is Severity.NOTE


@pytest.mark.parametrize(
    ("text", "read"), [("13.0.85", (13, 0)), ("12.8", (12, 8)), ("13", None), ("", None), (None, None)]
)
def test_two_numbers_of_a_version_are_read(text: str | None, read: tuple[int, int] | None) -> None:
    assert nvidia.numbers(text) == read
