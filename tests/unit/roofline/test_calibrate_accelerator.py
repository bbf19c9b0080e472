"""An accelerator's ceilings, measured with CPU tensors and a clock that says how long each call takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelmark.device import FakeDevice
from kernelmark.records import DeviceRecord, Telemetry
from kernelmark.roofline import Rate, find_profile
from kernelmark.roofline import calibrate_accelerator as subject
from kernelmark.roofline.calibrate_accelerator import accelerator_measured, measure_accelerator
from kernelmark.roofline.calibration_store import calibration_file, store_calibration
from kernelmark.roofline.ceilings import Ceilings, Effort

MIB = 1 << 20
GPU = DeviceRecord(
    kind="cuda",
    name="NVIDIA H200",
    cores=132,
    memory_bytes=141 << 30,
    driver="580",
    details={"toolkit": "CUDA 13.0"},
)
CEILINGS = Ceilings(
    {"read": 4e12, "copy": 4.3e12}, {Rate.BFLOAT16: 7e14}, 2 << 30, None, {Rate.BFLOAT16: 6e14}
)


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_MATMUL_SIZES", (16, 32))
    monkeypatch.setattr(subject, "_STREAM_BYTES", 3 * MIB)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("KERNELMARK_PROFILES", raising=False)


class Timing:
    """Runs the call and says that it took a microsecond; notes the precision of float32 products meanwhile."""

    def __init__(self) -> None:
        self.precisions: list[str] = []

    def __call__(self, run: Callable[[], object]) -> float:
        run()
        self.precisions.append(torch.get_float32_matmul_precision())
        return 1e-6


def test_each_pattern_counts_what_it_touches_and_each_dtype_its_largest_product() -> None:
    found = measure_accelerator(FakeDevice(kind="cuda"), Effort(0.001, 0.05, 0.001), timed=Timing())
    assert found.bandwidth == dict.fromkeys(("read", "write", "copy", "triad"), 3 * MIB / 1e-6)
    assert set(found.flops) == {Rate.FLOAT64, Rate.FLOAT32, Rate.TF32, Rate.FLOAT16, Rate.BFLOAT16}
    assert set(found.flops.values()) == {2 * 32**3 / 1e-6}
    assert set(found.sustained) == set(found.flops)


def test_tf32_is_on_for_its_own_product_only_and_back_as_it_was_afterwards() -> None:
    before, timing = torch.get_float32_matmul_precision(), Timing()
    measure_accelerator(FakeDevice(kind="cuda"), Effort(0.0, 0.01), timed=timing)
    assert torch.get_float32_matmul_precision() == before
    assert {"high", "highest"} <= set(timing.precisions)
    assert timing.precisions.count("highest") > timing.precisions.count("high")


def test_another_accelerator_is_not_asked_for_what_it_may_not_have() -> None:
    found = measure_accelerator(FakeDevice(kind="xpu"), Effort(0.0, 0.01), timed=Timing())
    assert set(found.flops) == {Rate.FLOAT32, Rate.FLOAT16, Rate.BFLOAT16}
    assert found.sustained == {}


def test_a_rate_that_is_kept_up_leaves_out_the_first_half() -> None:
    seconds = iter([9.0] * 10 + [0.5] * 10)
    assert subject._kept_up(lambda: None, lambda run: next(seconds), 20.0, 0.5) == pytest.approx(2 / 0.5)


@pytest.mark.parametrize(
    ("last_level", "memory", "size"),
    [(60 * MIB, None, 480 * MIB), (0, 8 * MIB, MIB), (0, 1 << 40, 3 * MIB)],
)
def test_the_buffer_is_beyond_the_cache_and_within_the_memory(
    last_level: int, memory: int | None, size: int
) -> None:
    assert subject._buffer_bytes(last_level, memory) == size


def test_a_calibration_of_a_gpu_counts_before_the_shipped_profile_and_has_its_conditions() -> None:
    before = Telemetry(clock_mhz=1980.0, power_w=120.0, other_processes=("pid 7",))
    after = Telemetry(clock_mhz=1700.0, throttle_reasons=("software power cap",))
    profile = accelerator_measured(GPU, CEILINGS, before, after)
    store_calibration(profile, GPU)
    found = find_profile(GPU)
    assert found is not None
    assert found.calibration is not None
    assert (found.name, found.bandwidth.per_s) == ("NVIDIA H200, as measured", 4.3e12)
    assert found.calibration.conditions["clock_before"] == "1980 MHz"
    assert found.calibration.conditions["throttle_reasons_after"] == "software power cap"
    assert found.calibration.conditions["other_processes"] == "pid 7"
    assert found.calibration.measured["sustained_bfloat16_flops_per_s"] == 6e14


def test_a_slice_of_a_gpu_is_another_device() -> None:
    half = GPU.model_copy(update={"cores": 66, "memory_bytes": 70 << 30})
    assert calibration_file(half) != calibration_file(GPU)


def test_a_ceiling_is_the_best_that_was_seen_also_where_the_long_run_was_faster() -> None:
    odd = Ceilings({"read": 1.0}, {Rate.FLOAT32: 3.0}, 1, None, {Rate.FLOAT32: 4.0})
    assert accelerator_measured(GPU, odd, Telemetry(), Telemetry()).flops[Rate.FLOAT32].per_s == 4.0
