"""Models on a CUDA device: MLIR is said to be unavailable, inductor is checked against eager, and both are timed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelmark.models import ModelRequest, run_model
from kernelmark.records import Check

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "examples" / "KernelBench" / "models"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernelmark", *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=folder,
        check=False,
    )


@pytest.mark.parametrize("name", ["level1/8_softmax.py", "level1/6_relu.py"])
def test_inductor_and_eager_are_timed_by_the_device_s_own_timer(name: str, tmp_path: Path) -> None:
    told: list[str] = []
    request = ModelRequest(MODELS / name, device="cuda", benchmark=True, iterations=20, out=tmp_path / "run")
    found = run_model(request, tell=told.append)
    rows = {row.implementation: row for row in found.comparison}
    assert rows["mlir"].check is Check.UNAVAILABLE
    assert rows["inductor"].check is Check.VERIFIED
    assert rows["inductor"].params["device"] == "cuda:0"
    assert rows["eager"].ratio is not None
    for each in ("inductor", "eager"):
        timing = rows[each].timing
        assert timing is not None
        assert timing.n_kernels
    assert "this run is on cuda:0" in told[0]


def test_auto_is_the_gpu_and_the_command_ends_with_0(tmp_path: Path) -> None:
    done = run(tmp_path, "model", str(MODELS / "level1/6_relu.py"), "--device", "auto", "--dtype", "bf16")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mlir: unavailable" in done.stdout
    assert "Success: The output of the compiled model matches the reference output." in done.stdout


def test_a_suite_runs_on_the_gpu_from_forked_processes_two_at_a_time(tmp_path: Path) -> None:
    kernels = ("--kernel", "level1/6_", "--kernel", "level1/8_")
    done = run(
        tmp_path,
        *("kernelbench", "--suite", "own", *kernels, "--device", "cuda", "--benchmark"),
        *("--jobs", "2", "--iterations", "20", "--out", "out", "--quiet"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "out" / "suite.json").read_text())
    assert report["subject"] == "inductor"
    for kernel in report["kernels"]:
        assert kernel["status"] == "verified"
        assert kernel["implementations"]["mlir"]["check"] == "unavailable"
        assert kernel["ratios"]["eager"]["low"] > 0
    assert report["groups"][0]["means"]["eager"]["count"] == 2
