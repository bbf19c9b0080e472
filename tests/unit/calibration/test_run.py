"""A calibration is kept whole with what the instruments read, refused on a busy CPU, and quick on request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernelmark.calibration import run as subject
from kernelmark.calibration.instruments import Reading
from kernelmark.calibration.run import calibrate
from kernelmark.device import CpuDevice, FakeDevice
from kernelmark.errors import UnavailableError, UsageError
from kernelmark.records import DeviceRecord, Telemetry
from kernelmark.roofline import Rate, find_profile
from kernelmark.roofline.ceilings import FULL, QUICK, Ceilings, Effort

MIB = 1 << 20
QUIET = Ceilings({"read": 20e9, "copy": 28e9}, {Rate.FLOAT32: 347e9}, 960 * MIB, 0.01, {Rate.FLOAT32: 300e9})
EMPTY = Reading("host", "nothing", 62.5, 0.0, key="host_nothing_ns")
OFF = Reading("host", "a spin", 2e6, 1e6, "100 % off", True, "host_spin_ns")


@pytest.fixture
def efforts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Effort]:
    """Measure nothing; give the efforts that were asked for."""
    asked: list[Effort] = []

    def measure(record: DeviceRecord, effort: Effort) -> Ceilings:
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
    monkeypatch.setattr(subject, "measure_ceilings", lambda record, effort: busy)
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
    monkeypatch.setattr(subject, "measure_accelerator", lambda device, effort: QUIET)
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
