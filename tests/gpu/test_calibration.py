"""A real accelerator's ceilings, and what its timers read of known calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.calibration import calibrate
from kernelmark.device import open_device
from kernelmark.roofline import Rate, find_profile

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def test_a_gpu_is_calibrated_within_what_its_datasheet_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    device = open_device("cuda")
    told = find_profile(device.describe())
    outcome = calibrate(device)
    assert outcome.path is not None
    assert {"read_bytes_per_s", "short_tf32_flops_per_s", "sustained_bfloat16_flops_per_s"} <= set(
        outcome.measured
    )
    if told is not None:
        assert 0.5 * told.bandwidth.per_s < outcome.profile.bandwidth.per_s < 1.05 * told.bandwidth.per_s
        for rate in (Rate.FLOAT8, Rate.INT8) if device.describe().capability in ("8.9", "9.0") else ():
            assert outcome.measured[f"short_{rate.value}_flops_per_s"] < 1.05 * told.flops[rate].per_s
            assert rate not in outcome.profile.flops
        for rate in (Rate.FLOAT32, Rate.TF32, Rate.BFLOAT16):
            assert outcome.profile.flops[rate].per_s < 1.05 * told.flops[rate].per_s


def test_every_timer_that_is_here_reads_a_spin_of_known_length() -> None:
    outcome = calibrate(open_device("cuda"), quick=True)
    spins = {each.timer: each for each in outcome.readings if each.what == "a spin"}
    assert "device_events" in spins
    assert not {name: each.note for name, each in spins.items() if each.doubtful}
