"""An accelerator's clocks, their locks, its neighbours, and whether NVML tells of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmark.doctor import nvidia
from kernelmark.doctor.machine import Machine, Severity, worst
from kernelmark.records import Telemetry


def test_a_cpu_has_none_of_it(cpu_machine: Machine) -> None:
    assert not list(nvidia.accelerator(cpu_machine))


def test_a_free_clock_is_no_more_than_a_note(gpu_machine: Machine, by_what) -> None:
    table = by_what(nvidia.accelerator(gpu_machine))
    assert worst(table.values()) is Severity.NOTE
    assert "--lock-gpu-clocks" in table["clock lock"].fix
    assert table["other processes"].found == "none on the device"


@pytest.mark.parametrize(
    ("reasons", "clocks", "lock"),
    [
        (("idle",), Severity.OK, "none: the clock"),
        (("software power cap",), Severity.WARNING, "none: the clock"),
        (("idle", "application clock setting"), Severity.OK, "held at 1200 MHz"),
        (("hardware thermal slowdown", "sync boost"), Severity.WARNING, "held at 1200 MHz: sync boost"),
    ],
)
def test_what_lowers_a_clock_is_told_from_what_holds_it(
    gpu_machine: Machine, by_what, reasons: tuple[str, ...], clocks: Severity, lock: str
) -> None:
    now = Telemetry(clock_mhz=1200.0, throttle_reasons=reasons)
    table = by_what(nvidia.accelerator(replace(gpu_machine, telemetry=now)))
    assert table["clocks"].severity is clocks
    assert table["clocks"].found.endswith(", idle") is (clocks is Severity.OK)
    assert table["clock lock"].found.startswith(lock)


def test_a_neighbour_is_a_warning(gpu_machine: Machine, by_what) -> None:
    now = Telemetry(clock_mhz=1980.0, other_processes=("pid 7",))
    finding = by_what(nvidia.accelerator(replace(gpu_machine, telemetry=now)))["other processes"]
    assert (finding.severity, finding.found) == (Severity.WARNING, "on the device: pid 7")


def test_without_nvml_nothing_is_said_of_clocks_and_neighbours(gpu_machine: Machine) -> None:
    assert gpu_machine.device is not None
    silent = gpu_machine.device.model_copy(update={"details": {"telemetry": "none: pynvml is not installed"}})
    found = list(nvidia.accelerator(replace(gpu_machine, device=silent, telemetry=Telemetry())))
    assert [(each.what, each.severity) for each in found] == [("NVML", Severity.WARNING)]
    assert "pynvml is not installed" in found[0].found


def test_lines_that_cannot_be_reset_are_a_warning(gpu_machine: Machine, by_what) -> None:
    assert gpu_machine.device is not None
    device = gpu_machine.device.model_copy(update={"details": {"persisting_l2": "not reset: no libcuda"}})
    table = by_what(nvidia.accelerator(replace(gpu_machine, device=device)))
    assert table["persisting L2 lines"].severity is Severity.WARNING
