"""A calibration is kept whole with what the instruments read, refused on a busy CPU, and quick on request.

What rows are related to is measured once where a device has no other figure, and again where it was under load.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelmark.calibration import run as subject
from kernelmark.calibration.ceilings import FULL, QUICK, SHORT, Ceilings, Effort
from kernelmark.calibration.instruments import Reading
from kernelmark.calibration.processor import Loop
from kernelmark.calibration.run import calibrate, profile_for
from kernelmark.device import CpuDevice, Device, FakeDevice
from kernelmark.errors import UnavailableError, UsageError
from kernelmark.records import DeviceRecord, Telemetry
from kernelmark.roofline import Rate, find_profile

MIB = 1 << 20
QUIET = Ceilings({"read": 20e9, "copy": 28e9}, {Rate.FLOAT32: 347e9}, 960 * MIB, 0.01, {Rate.FLOAT32: 300e9})
EMPTY = Reading("host", "nothing", 62.5, 0.0, key="host_nothing_ns")
OFF = Reading("host", "a spin", 2e6, 1e6, "100 % off", True, "host_spin_ns")


@pytest.fixture
def efforts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Effort]:
    """Measure nothing; give the efforts that were asked for."""
    asked: list[Effort] = []

    def measure(device: Device, effort: Effort = SHORT) -> Ceilings:
        asked.append(effort)
        return QUIET

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("KERNELMARK_PROFILES", raising=False)
    monkeypatch.setattr(subject, "measure_ceilings", measure)
    monkeypatch.setattr(subject, "read_instruments", lambda device, plan: (EMPTY,))
    return asked


def test_what_was_measured_is_what_the_roofline_then_uses(efforts: list[Effort]) -> None:
    outcome = calibrate(CpuDevice())
    assert efforts == [FULL]
    found = find_profile(CpuDevice().describe())
    assert found is not None
    assert found.path == str(outcome.path)
    assert found.bandwidth.per_s == 28e9
    assert found.calibration is not None
    assert found.calibration.date
    assert found.calibration.measured == {
        "read_bytes_per_s": 20e9,
        "copy_bytes_per_s": 28e9,
        "short_float32_flops_per_s": 347e9,
        "sustained_float32_flops_per_s": 300e9,
        "taken_by_others": 0.01,
        "load_average": found.calibration.measured["load_average"],
        "host_nothing_ns": 62.5,
    }
    assert (outcome.doubts, outcome.overruled_by) == ((), "")


def test_a_quick_look_keeps_nothing(efforts: list[Effort]) -> None:
    outcome = calibrate(CpuDevice(), quick=True)
    assert efforts == [QUICK]
    assert outcome.path is None
    assert find_profile(CpuDevice().describe()) is None


@pytest.mark.usefixtures("efforts")
def test_a_busy_cpu_is_refused_or_with_a_quick_look_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = replace(QUIET, taken_by_others=0.41)
    monkeypatch.setattr(subject, "measure_ceilings", lambda device, effort: busy)
    with pytest.raises(UnavailableError, match=r"other processes took 41\.0 %"):
        calibrate(CpuDevice())
    assert find_profile(CpuDevice().describe()) is None
    assert "41.0 %" in calibrate(CpuDevice(), quick=True).doubts[0]


@pytest.mark.usefixtures("efforts")
def test_a_reading_in_doubt_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "read_instruments", lambda device, plan: (EMPTY, OFF))
    assert calibrate(CpuDevice()).doubts == ("host, a spin: 100 % off",)


@pytest.mark.usefixtures("efforts")
def test_a_profile_of_the_users_own_that_counts_instead_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = calibrate(CpuDevice()).path
    assert kept is not None
    own = tmp_path / "own" / "mine.yaml"
    own.parent.mkdir()
    own.write_text(kept.read_text())
    monkeypatch.setenv("KERNELMARK_PROFILES", str(own.parent))
    assert calibrate(CpuDevice()).overruled_by == str(own)


class AGpu(FakeDevice):
    """A device that is described as one with a shipped profile, and that somebody else uses too."""

    def describe(self) -> DeviceRecord:
        return DeviceRecord(kind="cuda", name="NVIDIA H200", cores=132, memory_bytes=141 << 30)

    def telemetry(self) -> Telemetry:
        self.log.append("telemetry")
        return Telemetry(clock_mhz=1980.0, other_processes=("pid 7",))


@pytest.mark.usefixtures("efforts")
def test_rates_that_torch_cannot_measure_stay_as_the_datasheet_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        subject, "measure_ceilings", lambda device, effort: replace(QUIET, taken_by_others=None)
    )
    device = AGpu(kind="cuda")
    outcome = calibrate(device)
    assert device.log[:2] == ["synchronize", "telemetry"]  # NVML's list holds this process only then
    assert outcome.profile.flops[Rate.FLOAT32].per_s == 347e9
    assert outcome.profile.flops[Rate.FLOAT8].per_s == 1.979e15
    assert "datasheet" in outcome.profile.flops[Rate.FLOAT8].source
    assert "pid 7" in outcome.doubts[0]


def test_a_fake_device_has_no_ceilings() -> None:
    with pytest.raises(UsageError, match="fake device"):
        calibrate(FakeDevice())


# --- what rows are related to ---------------------------------------------------------------------

LOOPS = {Rate.FLOAT32: Loop(350e9, "512-bit")}


class Measuring:
    """Counts how often it is asked to measure, and says what it is told to."""

    def __init__(self) -> None:
        self.ceilings, self.count = replace(QUIET, loops=LOOPS), 0

    def __call__(self, device: Device) -> Ceilings:
        self.count += 1
        return self.ceilings


class ACpu(CpuDevice):
    """This CPU, under the load that a test says."""

    load = 4.0

    def telemetry(self) -> Telemetry:
        return Telemetry(load_average=self.load)


@pytest.fixture
def measuring(efforts: list[Effort], monkeypatch: pytest.MonkeyPatch) -> Measuring:
    measuring = Measuring()
    monkeypatch.setattr(subject, "measure_ceilings", measuring)
    return measuring


def test_a_cpu_is_measured_once_and_then_read_from_where_it_is_kept(measuring: Measuring) -> None:
    first = profile_for(ACpu())
    assert first is not None
    assert profile_for(ACpu()) == first
    assert measuring.count == 1
    assert Path(first.path).exists()
    assert find_profile(ACpu().describe()) == first


def test_another_number_of_threads_is_another_calibration(measuring: Measuring) -> None:
    threads = torch.get_num_threads()
    profile_for(ACpu())
    try:
        torch.set_num_threads(threads + 1)
        profile_for(ACpu())
    finally:
        torch.set_num_threads(threads)
    assert measuring.count == 2


def test_ceilings_of_a_busy_machine_are_refused_and_not_kept(measuring: Measuring) -> None:
    measuring.ceilings = replace(QUIET, taken_by_others=0.41)
    with pytest.raises(UnavailableError, match=r"other processes took 41\.0 % .*quiet machine"):
        profile_for(ACpu())
    assert find_profile(ACpu().describe()) is None


@pytest.mark.parametrize(("taken", "load", "count"), [(0.12, 2.0, 2), (0.12, 3.9, 1), (0.04, 0.0, 1)])
def test_a_profile_measured_under_load_is_measured_again_when_the_machine_is_quieter(
    measuring: Measuring, taken: float, load: float, count: int
) -> None:
    device = ACpu()
    measuring.ceilings = replace(measuring.ceilings, taken_by_others=taken)
    profile_for(device)
    device.load = load
    measuring.ceilings = replace(measuring.ceilings, bandwidth={"read": 99e9}, taken_by_others=0.0)
    found = profile_for(device)
    assert measuring.count == count
    assert found is not None
    assert found.bandwidth.per_s == (99e9 if count == 2 else 28e9)
    assert find_profile(device.describe()) == found


def test_a_repetition_that_met_more_load_or_was_refused_leaves_what_there_was(measuring: Measuring) -> None:
    device = ACpu()
    measuring.ceilings = replace(measuring.ceilings, taken_by_others=0.12)
    first = profile_for(device)
    device.load = 1.0
    for taken in (0.15, 0.5):
        measuring.ceilings = replace(measuring.ceilings, bandwidth={"read": 1.0}, taken_by_others=taken)
        assert profile_for(device) == first
    assert measuring.count == 3


def test_a_profile_from_before_the_processor_s_own_loops_is_measured_again(
    measuring: Measuring, monkeypatch: pytest.MonkeyPatch
) -> None:
    measuring.ceilings = QUIET
    profile_for(ACpu())
    monkeypatch.setattr(subject, "c_compiler", lambda: None)
    profile_for(ACpu())
    assert measuring.count == 1  # without a compiler it would say the same
    monkeypatch.setattr(subject, "c_compiler", lambda: "cc")
    measuring.ceilings = replace(QUIET, loops=LOOPS)
    found = profile_for(ACpu())
    assert found is not None
    assert found.flops[Rate.FLOAT32].per_s == 350e9
    profile_for(ACpu())
    assert measuring.count == 2


def test_only_a_cpu_is_measured_unasked(measuring: Measuring) -> None:
    assert profile_for(FakeDevice(kind="cuda")) is None
    assert measuring.count == 0
