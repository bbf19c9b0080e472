"""A spin lasts as long as it says, on a CPU by a clock and on a GPU by its cycles."""

from __future__ import annotations

import time

import pytest
import torch

from kernelmark.calibration.instruments import spin
from kernelmark.device import FakeDevice
from kernelmark.records import Telemetry


def test_a_cpu_spins_no_shorter_than_asked() -> None:
    known = spin(FakeDevice(kind="cpu"), 200_000)
    assert known is not None
    start = time.perf_counter_ns()
    known.run()
    assert time.perf_counter_ns() - start >= 199_000  # two clocks, one of them slewed
    assert known.length_ns == 200_000


def test_a_gpu_spins_for_cycles_of_the_clock_that_it_has_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[int] = []
    monkeypatch.setattr(torch.cuda, "_sleep", slept.append)
    known = spin(FakeDevice(kind="cuda"), 1_000_000)  # its clock is 1000 MHz
    assert known is not None
    assert known.length_ns == 2_000_000
    assert known.by == "2000000 cycles at 1000 MHz"
    known.run()
    assert slept == [2_000_000, 40_000_000, 2_000_000]


def test_without_a_clock_the_length_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(FakeDevice, "telemetry", lambda self: Telemetry())
    assert spin(FakeDevice(kind="cuda"), 1_000_000) is None


def test_another_accelerator_has_no_known_spin() -> None:
    assert spin(FakeDevice(kind="xpu"), 1_000_000) is None
