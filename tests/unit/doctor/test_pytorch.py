"""torch against what the machine has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmark.doctor import nvidia
from kernelmark.doctor.machine import Machine, Severity, TorchFacts, worst


def test_a_cpu_build_is_well_where_there_is_nothing_but_a_cpu(cpu_machine: Machine) -> None:
    found = list(nvidia.torch(cpu_machine))
    assert worst(found) is Severity.OK
    assert "2.11.0+cpu, built with no GPU toolkit" in found[0].found


def test_no_torch_is_missing_and_nothing_else_is_said(cpu_machine: Machine) -> None:
    (finding,) = nvidia.torch(replace(cpu_machine, torch=None, device=None))
    assert (finding.severity, finding.fix) == (Severity.MISSING, "pip install torch")


def test_a_cpu_build_beside_an_nvidia_driver_is_missing_cuda(cpu_machine: Machine, root, by_what) -> None:
    root.write("dev/nvidiactl")
    finding = by_what(nvidia.torch(cpu_machine))["torch with CUDA"]
    assert finding.severity is Severity.MISSING
    assert "built without CUDA" in finding.found
    assert "install a torch with CUDA" in finding.fix


@pytest.mark.parametrize(
    ("environ", "severity", "told"),
    [
        ({"CUDA_VISIBLE_DEVICES": ""}, Severity.WARNING, "CUDA_VISIBLE_DEVICES is ''"),
        ({}, Severity.MISSING, "finds no device"),
    ],
)
def test_a_device_that_is_hidden_is_another_thing_than_one_that_is_not_there(
    cpu_machine: Machine, root, by_what, environ: dict[str, str], severity: Severity, told: str
) -> None:
    root.write("proc/driver/nvidia/version", "580.65.06")
    machine = replace(cpu_machine, torch=TorchFacts(version="2.11.0", cuda="13.0"), environ=environ)
    finding = by_what(nvidia.torch(machine))["torch with CUDA"]
    assert finding.severity is severity
    assert told in finding.found


def test_a_device_that_torch_uses_is_well(gpu_machine: Machine) -> None:
    found = list(nvidia.torch(gpu_machine))
    assert worst(found) is Severity.OK
    assert [each.what for each in found] == ["torch", "torch with CUDA", "best device"]
