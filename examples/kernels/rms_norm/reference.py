"""residual ← residual + x, in place, and out = residual / rms(residual) · weight."""

from __future__ import annotations

from typing import Any

import torch

inout = ("residual",)  # its value before the call matters, so it is restored before each call
atol, rtol = 1e-5, 1e-4


def shapes(M: int, N: int, **_: Any) -> dict[str, tuple[int, ...]]:  # noqa: N803
    return {"x": (M, N), "residual": (M, N), "weight": (N,), "out": (M, N)}


def reference(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, **_: Any
) -> dict[str, torch.Tensor]:
    total = residual + x
    scale = torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + eps)
    return {"residual": total, "out": total * scale * weight}
