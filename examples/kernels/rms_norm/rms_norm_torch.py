"""The sum with the residual and the norm with nothing but torch, which has the norm as one function."""

from __future__ import annotations

from typing import Any

import torch


def setup(M: int = 1024, N: int = 1024, eps: float = 1e-6, **_: Any) -> dict[str, Any]:  # noqa: N803
    inputs = {
        "x": torch.randn(M, N),
        "residual": torch.randn(M, N),
        "weight": torch.randn(N),
        "out": torch.empty(M, N),
        "eps": eps,
    }
    return {"inputs": inputs, "outputs": ["residual", "out"]}


def run_kernel(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, eps: float
) -> None:
    residual += x
    out.copy_(torch.nn.functional.rms_norm(residual, weight.shape, weight, eps))
