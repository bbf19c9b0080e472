"""Generated kernels on a real device: Triton and inline CUDA are judged, and work on another stream is found."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelmark.isolation import Limits
from kernelmark.kernelbench.candidates.answers import look_at
from kernelmark.kernelbench.candidates.finding import find_candidates
from kernelmark.kernelbench.candidates.job import Baseline, Judging, Settings
from kernelmark.kernelbench.candidates.judging import judge, workers_for
from kernelmark.kernelbench.candidates.page import Judged
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelbench.suite import load_suite
from kernelmark.verify.conduct import after_call_on_cuda

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "examples" / "KernelBench"
DATA = ROOT / "tests" / "data" / "candidates"


def judged(folder: Path, out: Path) -> dict[str, Judged]:
    settings = Settings(device="cuda:0", seeds=2, baselines=(Baseline.EAGER,), iterations=20)
    judging = Judging(SUITE / "models", out, settings=settings, limits=Limits(240.0))
    with workers_for("cuda:0") as workers:
        found = find_candidates(folder, load_suite(SUITE / "own.yaml").entries)
        return {each.path.stem: judge(each, judging, workers) for each in found}


def test_triton_kernels_are_verified_and_timed(tmp_path: Path) -> None:
    found = judged(DATA / "gpu" / "honest", tmp_path)
    assert {each.status for each in found.values()} == {Status.VERIFIED}, found
    assert all(each.time_ns and each.speedups["eager"].value > 0 for each in found.values())


def test_work_on_another_stream_is_never_verified(tmp_path: Path) -> None:
    found = judged(DATA / "gpu" / "adversarial", tmp_path)
    assert {each.status for each in found.values()} == {Status.WRONG}, found
    assert all("stream" in each.message for each in found.values())


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="inline CUDA needs nvcc")
def test_inline_cuda_is_built_and_verified(tmp_path: Path) -> None:
    (found,) = judged(DATA / "gpu" / "nvcc", tmp_path).values()
    assert found.status is Status.VERIFIED, found


def test_a_call_in_order_is_told_from_one_that_runs_ahead_and_one_that_is_not_joined() -> None:
    a, b = torch.randn(2, 1024, 1024, device="cuda").unbind()
    side = torch.cuda.Stream()

    def in_order() -> torch.Tensor:
        return a @ b

    def ahead() -> torch.Tensor:
        with torch.cuda.stream(side):
            return a @ b

    def unjoined() -> torch.Tensor:
        out = torch.empty_like(a)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(20):
                torch.mm(a, b, out=out)
        return out

    def joined() -> torch.Tensor:
        out = unjoined()
        torch.cuda.current_stream().wait_stream(side)
        return out

    for call, words in (
        (in_order, ""),
        (joined, ""),
        (ahead, "a stream of its own"),
        (unjoined, "not joined"),
    ):
        call()
        torch.cuda.synchronize()
        a.normal_()
        _, breach, _ = after_call_on_cuda(call, look_at, "")
        assert words in breach if words else breach == "", (call, breach)


def test_the_study_of_candidates_finds_nothing_unexpected_in_honest_softmaxes(tmp_path: Path) -> None:
    study = [sys.executable, str(ROOT / "studies" / "candidates_gpu.py"), "--only", "softmax/t"]
    done = subprocess.run([*study, "--out", str(tmp_path)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 unexpected" in done.stdout
