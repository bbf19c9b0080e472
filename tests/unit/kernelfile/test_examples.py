"""The examples are right: C++ runs, Triton runs in its interpreter, CUDA compiles where there is nvcc."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmark.kernelfile import Request, benchmark
from kernelmark.kernelfile.building import find_library

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "kernels"
VALUES = {"matmul": {"M": "20", "N": "17", "K": "33"}, "rms_norm": {"M": "5", "N": "40", "eps": "1e-6"}}


def request_for(path: Path, out: Path, **options) -> Request:
    values = dict(VALUES[path.parent.name])
    quick = {"num_trials": 3, "num_warmup": 0, "cache": "warm", "isolation": False}
    return Request(path, path.with_name("reference.py"), out, values=values, **{**quick, **options})


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which is not installed")
@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.cpp")), ids=lambda path: path.stem)
def test_the_c_plus_plus_examples_are_verified_and_measured(path: Path, tmp_path: Path) -> None:
    assert benchmark(request_for(path, tmp_path / "out", compile=True)).outcome == "measured"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*_triton.py")), ids=lambda path: path.stem)
def test_the_triton_examples_are_verified_in_the_interpreter(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="needs triton, which is not installed")
    values = [f"--{name}={value}" for name, value in VALUES[path.parent.name].items()]
    command = [
        sys.executable,
        "-m",
        "kernelmark",
        "kernel",
        str(path),
        f"--ref={path.with_name('reference.py')}",
    ]
    done = subprocess.run(
        [*command, "--output-dir=out", "--device=cpu", *values],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verified only, not timed" in (tmp_path / "out" / "benchmark.md").read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc, which is not installed")
@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.cu")), ids=lambda path: path.stem)
def test_the_cuda_examples_compile(path: Path, tmp_path: Path) -> None:
    assert find_library(request_for(path, tmp_path / "out", compile=True, arch="sm_90")).stat().st_size > 0
