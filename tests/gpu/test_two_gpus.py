"""Ranks on two GPUs: the parts of ``studies/two_gpus.py``, each with all that it expects."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))

import two_gpus

DEVICES = torch.cuda.device_count()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICES < 2, reason=f"needs two CUDA devices; torch finds {DEVICES}"),
]


@pytest.mark.parametrize(
    "name",
    [
        "topology",
        pytest.param("collectives", marks=pytest.mark.spec("X2", "X12")),
        pytest.param("skew", marks=pytest.mark.spec("X13", "X14")),
        pytest.param("failures", marks=pytest.mark.spec("X15")),
        pytest.param("killed", marks=pytest.mark.spec("X15")),
        pytest.param("hangs", marks=pytest.mark.spec("X15")),
        "control",
    ],
)
def test_two_gpus_give_what_is_expected_of_them(name: str, tmp_path: Path) -> None:
    part = {each.name: each for each in two_gpus.PARTS}[name]
    ran = two_gpus.run(part, "cuda", part.limit_s, tmp_path)
    failed = [each for each in two_gpus.judge(part, ran, gpu=True) if not each.holds]
    assert not failed, ran.tails
