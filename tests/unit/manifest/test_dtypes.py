from __future__ import annotations

import pytest
import torch

from kernelmark.manifest.dtypes import DTYPE_BYTES, unknown_dtype


def test_every_size_is_the_size_torch_gives() -> None:
    assert {name: getattr(torch, name).itemsize for name in DTYPE_BYTES} == DTYPE_BYTES


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("half", "float16"),
        ("bf16", "bfloat16"),
        ("torch.float32", "float32"),
        ("float8_e4m3", "float8_e4m3fn"),
    ],
)
def test_a_name_that_is_no_dtype_is_answered_with_the_one_that_is_meant(written: str, meant: str) -> None:
    assert repr(meant) in unknown_dtype(written)
