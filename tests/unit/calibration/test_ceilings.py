"""Ceilings: on a CPU for real, on an accelerator with CPU tensors and a clock that says how long each call takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelmark.calibration import ceilings as subject
from kernelmark.calibration.ceilings import Ceilings, Effort, measure_ceilings, measured_profile
from kernelmark.calibration.processor import Loop
from kernelmark.device import CpuDevice, FakeDevice
from kernelmark.records import DeviceRecord, Telemetry
from kernelmark.roofline import Profile, Rate, find_profile
from kernelmark.roofline.profiles import calibration_file, store_calibration

MIB = 1 << 20
QUIET = Ceilings({"read": 20e9, "copy": 28e9, "triad": 27e9}, {Rate.FLOAT32: 347e9}, 960 * MIB, 0.01)
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
    monkeypatch.setattr(subject, "_CPU", (MIB, 0, (64, 128), subject._CPU[3]))
    monkeypatch.setattr(subject, "_GPU", (3 * MIB, 8, (16, 32), subject._GPU[3]))
    monkeypatch.setattr(subject, "_CUDA", (3 * MIB, 8, (16, 32), subject._CUDA[3]))
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
    found = measure_ceilings(FakeDevice(kind="cuda"), Effort(0.001, 0.05, 0.001), timed=Timing())
    assert found.bandwidth == dict.fromkeys(("read", "write", "copy", "triad"), 3 * MIB / 1e-6)
    assert set(found.flops) == set(Rate)
    assert set(found.flops.values()) == {2 * 32**3 / 1e-6}
    assert set(found.sustained) == set(found.flops)


def test_tf32_is_on_for_its_own_product_only_and_back_as_it_was_afterwards() -> None:
    before, timing = torch.get_float32_matmul_precision(), Timing()
    measure_ceilings(FakeDevice(kind="cuda"), Effort(0.0, 0.01), timed=timing)
    assert torch.get_float32_matmul_precision() == before
    assert {"high", "highest"} <= set(timing.precisions)
    assert timing.precisions.count("highest") > timing.precisions.count("high")


def test_another_accelerator_is_not_asked_for_what_it_may_not_have() -> None:
    found = measure_ceilings(FakeDevice(kind="xpu"), Effort(0.0, 0.01), timed=Timing())
    assert set(found.flops) == {Rate.FLOAT32, Rate.FLOAT16, Rate.BFLOAT16}
    assert found.sustained == {}


def test_a_product_that_a_card_refuses_is_not_measured_and_the_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    product = subject._product

    def on_an_older_card(where: str, rate: Rate, size: int) -> Callable[[], object]:
        if rate is Rate.FLOAT8:
            raise RuntimeError("only supported on devices with compute capability >= 8.9")
        return product(where, rate, size)

    monkeypatch.setattr(subject, "_product", on_an_older_card)
    found = measure_ceilings(FakeDevice(kind="cuda"), Effort(0.0, 0.01), timed=Timing())
    assert set(found.flops) == set(Rate) - {Rate.FLOAT8}


def test_what_torch_keeps_for_its_own_use_is_shown_and_is_no_ceiling_of_a_gpu() -> None:
    found = Ceilings({"read": 4e12}, {Rate.BFLOAT16: 7.9e14, Rate.INT8: 9.5e14}, 2 << 30)
    profile = measured_profile(GPU, found, Telemetry(), Telemetry())
    assert set(profile.flops) == {Rate.BFLOAT16}
    assert found.measured()["short_int8_flops_per_s"] == 9.5e14


def test_a_rate_that_is_kept_up_leaves_out_the_first_half() -> None:
    seconds = iter([9.0] * 10 + [0.5] * 10)
    assert subject._kept_up(lambda: None, lambda run: next(seconds), 20.0, 0.5) == pytest.approx(2 / 0.5)


@pytest.mark.parametrize(
    ("kind", "last_level", "memory", "size"),
    [
        ("cpu", 480 * MIB, None, 960 * MIB),
        ("cpu", 480 * MIB, 64 << 30, 960 * MIB),
        ("cpu", 480 * MIB, 4 << 30, 512 * MIB),
        ("cpu", 8 * MIB, 64 << 30, 64 * MIB),
        ("cuda", 60 * MIB, None, 480 * MIB),
        ("cuda", 0, 8 * MIB, MIB),
        ("cuda", 0, 1 << 40, 64 * MIB),
    ],
)
def test_the_buffer_is_beyond_the_cache_and_within_the_memory(
    kind: str, last_level: int, memory: int | None, size: int
) -> None:
    assert subject._buffer_bytes(64 * MIB, {"cpu": 2, "cuda": 8}[kind], last_level, memory) == size


def test_a_calibration_of_a_gpu_counts_before_the_shipped_profile_and_has_its_conditions() -> None:
    before = Telemetry(clock_mhz=1980.0, power_w=120.0, other_processes=("pid 7",))
    after = Telemetry(clock_mhz=1700.0, throttle_reasons=("software power cap",))
    profile = measured_profile(GPU, CEILINGS, before, after)
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
    assert measured_profile(GPU, odd, Telemetry(), Telemetry()).flops[Rate.FLOAT32].per_s == 4.0


def _described(ceilings: Ceilings) -> Profile:
    device = CpuDevice()
    return measured_profile(device.describe(), ceilings, device.telemetry())


def test_the_ceiling_is_the_best_pattern_and_says_honestly_what_it_is() -> None:
    profile = _described(QUIET)
    assert profile.bandwidth.per_s == 28e9
    assert profile.bandwidth.source.startswith("best copy rate that torch reached here, 20")
    assert profile.flops[Rate.FLOAT32].source.startswith(
        "best float32 matrix product that torch reached here"
    )


def test_the_processor_s_own_loop_is_the_ceiling_where_it_is_faster_than_the_product() -> None:
    loops = {
        Rate.FLOAT32: Loop(400e9, "512-bit"),
        Rate.FLOAT64: Loop(1.0, "512-bit"),
        Rate.INT8: Loop(2.0, "sdot"),
    }
    both = Ceilings(QUIET.bandwidth, QUIET.flops | {Rate.FLOAT64: 2.0}, MIB, loops=loops)
    flops = _described(both).flops
    assert flops[Rate.FLOAT32].per_s == 400e9
    assert flops[Rate.FLOAT32].source.startswith(
        "fastest float32 multiply-adds of this processor (512-bit), 20"
    )
    assert flops[Rate.FLOAT64].source.startswith("best float64 matrix product that torch reached here")
    assert flops[Rate.INT8].per_s == 2.0
    assert both.measured()["loop_float32_flops_per_s"] == 400e9


def test_the_conditions_are_kept_with_the_ceilings() -> None:
    calibration = _described(QUIET).calibration
    assert calibration is not None
    assert calibration.conditions["threads"] == str(torch.get_num_threads())
    assert calibration.conditions["torch"] == torch.__version__
    assert calibration.conditions["buffer"] == "960 MiB"
    assert calibration.conditions["taken_by_others"] == "1.0 %"
    assert calibration.conditions["multiply_adds"] == "torch's products: no C compiler"
    assert set(calibration.conditions) >= {"affinity", "capability", "load_average"}
    assert calibration.measured["taken_by_others"] == 0.01


def test_a_buffer_that_the_cache_holds_is_told() -> None:
    calibration = _described(Ceilings(QUIET.bandwidth, QUIET.flops, 1024, None)).calibration
    assert calibration is not None
    assert "last-level cache" in calibration.conditions["warning"]
    assert calibration.conditions["taken_by_others"] == "unknown"


def test_real_ceilings_are_positive_and_their_buffer_is_counted() -> None:
    ceilings = measure_ceilings(CpuDevice(), Effort(0.001, 0.001, 0.002))
    assert set(ceilings.bandwidth) == {"read", "write", "copy", "triad"}
    assert set(ceilings.flops) == {Rate.FLOAT32, Rate.BFLOAT16, Rate.FLOAT64}
    assert set(ceilings.sustained) == set(ceilings.flops)
    assert set(ceilings.loops) >= {Rate.FLOAT32, Rate.BFLOAT16, Rate.FLOAT64}
    measured = ceilings.measured()
    others = measured.pop("taken_by_others", 0.0)
    assert others >= 0
    assert all(value > 0 for value in measured.values())
    assert len(measured) == 10 + len(ceilings.loops)
    assert ceilings.buffer_bytes == MIB


def test_the_best_of_several_passes_is_kept() -> None:
    seconds = iter([9.0, 0.02, 0.01, 0.03])
    assert subject._best(lambda run: next(seconds), 0.0, lambda: None) == 0.01
