"""Timers as they were tried, and the libraries under them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmark.doctor import tools
from kernelmark.doctor.machine import Machine, Severity, TimerTrial, worst
from kernelmark.probe import Probe


def test_all_is_well_where_all_works(cpu_machine: Machine, gpu_machine: Machine) -> None:
    assert worst(tools.instruments(cpu_machine)) is Severity.OK
    assert worst(tools.instruments(gpu_machine)) is Severity.OK


@pytest.mark.parametrize(
    ("default", "unavailable", "severity"),
    [
        (True, True, Severity.MISSING),
        (True, False, Severity.WARNING),
        (False, True, Severity.NOTE),
        (False, False, Severity.WARNING),
    ],
)
def test_a_timer_that_fails_is_as_grave_as_what_needs_it(
    gpu_machine: Machine, by_what, default: bool, unavailable: bool, severity: Severity
) -> None:
    trial = TimerTrial("cupti", default, "records", "CUPTI gave 0 records", unavailable)
    finding = by_what(tools.instruments(replace(gpu_machine, timers=(trial,))))["timer cupti"]
    assert finding.severity is severity
    assert "CUPTI gave 0 records" in finding.found


@pytest.mark.parametrize(
    ("binding", "library", "severity", "fix"),
    [
        ("13.0.1", "13.0.85", Severity.OK, ""),
        ("13.1.0", "13.0.85", Severity.WARNING, "pip install --no-deps 'cupti-python==13.0.*'"),
        ("13.0.1", None, Severity.OK, ""),
        ("12.8.0", None, Severity.WARNING, "pip install --no-deps 'cupti-python==13.0.*'"),
        (None, "13.0.85", Severity.MISSING, "pip install 'kernelmark[cuda]'"),
    ],
)
def test_cupti_python_has_to_fit_the_libcupti_of_torch(
    gpu_machine: Machine, by_what, binding: str | None, library: str | None, severity: Severity, fix: str
) -> None:
    versions = {"cupti-python": binding, "nvidia-cuda-cupti": library, "triton": "3.6.0"}
    finding = by_what(tools.instruments(replace(gpu_machine, version=versions.get)))["cupti-python"]
    assert (finding.severity, finding.fix) == (severity, fix)


def test_kernels_in_an_interpreter_are_a_warning(cpu_machine: Machine, by_what) -> None:
    table = by_what(tools.instruments(replace(cpu_machine, environ={"TRITON_INTERPRET": "1"})))
    assert table["Triton's interpreter"].severity is Severity.WARNING
    off = by_what(tools.instruments(replace(cpu_machine, environ={"TRITON_INTERPRET": "0"})))
    assert "Triton's interpreter" not in off


def test_no_triton_is_a_note(cpu_machine: Machine, by_what) -> None:
    table = by_what(tools.instruments(replace(cpu_machine, version=lambda name: None)))
    assert table["Triton"].severity is Severity.NOTE


def test_proton_is_there_missing_or_switched_off(gpu_machine: Machine, by_what) -> None:
    assert by_what(tools.instruments(gpu_machine))["Proton"].severity is Severity.OK
    without = replace(gpu_machine, module=lambda name: Probe(False, "not installed"))
    assert by_what(tools.instruments(without))["Proton"].found == "Triton comes without it"
    off = replace(gpu_machine, environ={"TRITON_PROTON_DISABLE": "1"})
    assert by_what(tools.instruments(off))["Proton"].fix == "unset TRITON_PROTON_DISABLE"
