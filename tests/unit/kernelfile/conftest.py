"""Writes pairs of files and runs them in this process, which costs no start of Python."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmark.kernelfile import KernelRun, Request, benchmark

REFERENCE = """
import torch

def reference(x, out, **kwargs):
    return x * 2
"""

SOLUTION = """
import torch

def setup(N=64, **kwargs):
    return {"inputs": {"x": torch.randn(N), "out": torch.empty(N)}, "outputs": ["out"]}

def run_kernel(x, out):
    torch.mul(x, 2, out=out)
"""

Runs = Callable[..., KernelRun]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def writing(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return writing


@pytest.fixture
def asked(tmp_path: Path, write: Callable[[str, str], Path]) -> Callable[..., Request]:
    """Make a request for a solution in torch, on the CPU, with few samples."""

    def asking(solution: str = SOLUTION, reference: str = REFERENCE, **options: Any) -> Request:
        given = {
            "device": "cpu",
            "implementation": "torch",
            "num_trials": 4,
            "num_warmup": 0,
            "cache": "warm",
        }
        return Request(
            solution=write("solution.py", solution),
            ref=write("ref.py", reference),
            output_dir=tmp_path / "out",
            **{**given, "isolation": False, **options},
        )

    return asking


@pytest.fixture
def run(asked: Callable[..., Request]) -> Runs:
    return lambda *args, **options: benchmark(asked(*args, **options))
