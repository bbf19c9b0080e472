"""Whether rows on the best device have a profile to be related to."""

from __future__ import annotations

from kernelmark.doctor import host
from kernelmark.doctor.machine import Machine, Severity
from kernelmark.roofline.profiles import calibration_file


def test_a_device_with_a_shipped_profile_is_well(gpu_machine: Machine) -> None:
    (finding,) = host.ceilings(gpu_machine)
    assert (finding.severity, finding.found) == (Severity.OK, "NVIDIA H200 SXM")


def test_a_device_without_one_is_told_to_calibrate(cpu_machine: Machine) -> None:
    (finding,) = host.ceilings(cpu_machine)
    assert (finding.severity, finding.fix) == (Severity.NOTE, "kernelmark calibrate")


def test_a_profile_that_cannot_be_read_is_a_warning(cpu_machine: Machine) -> None:
    assert cpu_machine.device is not None
    file = calibration_file(cpu_machine.device)
    file.parent.mkdir(parents=True)
    file.write_text("nonsense")
    (finding,) = host.ceilings(cpu_machine)
    assert finding.severity is Severity.WARNING
    assert str(file) in finding.found
