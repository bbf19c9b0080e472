"""A CPU's ceilings are measured, kept with their conditions, and refused where others used the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelmark.device import CpuDevice, FakeDevice
from kernelmark.errors import UnavailableError, UsageError
from kernelmark.records import DeviceRecord
from kernelmark.roofline import Profile, Rate, cpu_profile, find_profile
from kernelmark.roofline import calibrate_cpu as subject
from kernelmark.roofline.calibrate_cpu import calibrate_cpu, measure_ceilings
from kernelmark.roofline.ceilings import Ceilings, Effort

MIB = 1 << 20
QUIET = Ceilings({"read": 20e9, "copy": 28e9, "triad": 27e9}, {Rate.FLOAT32: 347e9}, 960 * MIB, 0.01)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("KERNELMARK_PROFILES", raising=False)


class Measuring:
    """Counts how often it is asked to measure."""

    def __init__(self, ceilings: Ceilings = QUIET) -> None:
        self.ceilings, self.count = ceilings, 0

    def __call__(self, device: DeviceRecord) -> Ceilings:
        self.count += 1
        return self.ceilings


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Measuring:
    measuring = Measuring()
    monkeypatch.setattr(subject, "measure_ceilings", measuring)
    return measuring


def test_the_ceiling_is_the_best_pattern_and_says_honestly_what_it_is() -> None:
    profile = calibrate_cpu(CpuDevice(), measure=Measuring())
    assert profile.bandwidth.per_s == 28e9
    assert profile.bandwidth.source.startswith("best copy rate that torch reached here, 20")
    assert profile.flops[Rate.FLOAT32].source.startswith(
        "best float32 matrix product that torch reached here"
    )


def test_the_conditions_are_kept_with_the_ceilings() -> None:
    profile = calibrate_cpu(CpuDevice(), measure=Measuring())
    assert profile.calibration is not None
    conditions = profile.calibration.conditions
    assert conditions["threads"] == str(torch.get_num_threads())
    assert conditions["torch"] == torch.__version__
    assert conditions["buffer"] == "960 MiB"
    assert conditions["taken_by_others"] == "1.0 %"
    assert set(conditions) >= {"affinity", "capability", "load_average"}


def test_a_buffer_that_the_cache_holds_is_told() -> None:
    small = Ceilings(QUIET.bandwidth, QUIET.flops, 1024, None)
    profile = calibrate_cpu(CpuDevice(), measure=Measuring(small))
    assert profile.calibration is not None
    assert "last-level cache" in profile.calibration.conditions["warning"]
    assert profile.calibration.conditions["taken_by_others"] == "unknown"


def test_it_is_measured_once_and_then_read_from_where_it_is_kept(measuring: Measuring) -> None:
    device = CpuDevice()
    first = cpu_profile(device)
    assert cpu_profile(device) == first
    assert measuring.count == 1
    assert Path(first.path).exists()
    assert find_profile(device.describe()) == first


def test_it_is_measured_again_on_request(measuring: Measuring) -> None:
    device = CpuDevice()
    cpu_profile(device)
    measuring.ceilings = Ceilings({"read": 99e9}, {}, 960 * MIB, 0.0)
    assert cpu_profile(device, recalibrate=True).bandwidth.per_s == 99e9
    assert cpu_profile(device).bandwidth.per_s == 99e9
    assert measuring.count == 2


def test_another_number_of_threads_is_another_calibration(measuring: Measuring) -> None:
    device, threads = CpuDevice(), torch.get_num_threads()
    cpu_profile(device)
    try:
        torch.set_num_threads(threads + 1)
        cpu_profile(device)
    finally:
        torch.set_num_threads(threads)
    assert measuring.count == 2


def test_a_broken_calibration_is_replaced_on_request(measuring: Measuring) -> None:
    device = CpuDevice()
    path = Path(cpu_profile(device).path)
    path.write_text("nonsense")
    assert isinstance(cpu_profile(device, recalibrate=True), Profile)
    assert find_profile(device.describe()) is not None


def test_ceilings_of_a_busy_machine_are_refused_and_not_kept(measuring: Measuring) -> None:
    measuring.ceilings = Ceilings(QUIET.bandwidth, QUIET.flops, 960 * MIB, 0.41)
    device = CpuDevice()
    with pytest.raises(UnavailableError, match=r"other processes took 41\.0 % .*quiet machine"):
        cpu_profile(device)
    assert find_profile(device.describe()) is None


def test_only_a_cpu_is_calibrated_by_measurement(measuring: Measuring) -> None:
    with pytest.raises(UsageError, match="is a cuda device"):
        cpu_profile(FakeDevice(kind="cuda"))
    assert measuring.count == 0


@pytest.mark.parametrize(
    ("last_level", "free", "size"),
    [
        (480 * MIB, None, 960 * MIB),
        (480 * MIB, 64 << 30, 960 * MIB),
        (480 * MIB, 4 << 30, 512 * MIB),
        (8 * MIB, 64 << 30, 64 * MIB),
    ],
)
def test_the_buffer_is_beyond_the_cache_and_within_the_memory(
    last_level: int, free: int | None, size: int
) -> None:
    assert subject._buffer_bytes(last_level, free) == size


def test_real_ceilings_are_positive_and_their_buffer_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_MATMUL_SIZES", (64, 128))
    monkeypatch.setattr(subject, "_buffer_bytes", lambda last, free: MIB)
    ceilings = measure_ceilings(CpuDevice().describe(), Effort(0.001, 0.001, 0.002))
    assert set(ceilings.bandwidth) == {"read", "write", "copy", "triad"}
    assert set(ceilings.flops) == {Rate.FLOAT32, Rate.BFLOAT16, Rate.FLOAT64}
    assert set(ceilings.sustained) == set(ceilings.flops)
    assert all(value > 0 for value in ceilings.measured().values())
    assert len(ceilings.measured()) == 10
    assert ceilings.buffer_bytes == MIB
    assert ceilings.taken_by_others is None or ceilings.taken_by_others >= 0


def test_a_rate_that_is_kept_up_counts_the_second_half_only() -> None:
    calls: list[float] = []

    def run() -> None:
        pause = 0.0 if len(calls) > 2 else 0.004  # slow in the beginning, as a cold device is
        calls.append(pause)
        end = subject.perf_counter() + pause
        while subject.perf_counter() < end:
            pass

    assert subject._kept_up(run, 0.02) > 1 / 0.004


def test_the_best_of_several_passes_is_kept() -> None:
    slow_first = iter([0.02, 0.01, 0.0, 0.0, 0.0, 0.0])

    def run() -> None:
        end = subject.perf_counter() + next(slow_first, 0.0)
        while subject.perf_counter() < end:
            pass

    assert subject._best(run, 0.0) < 0.01
