"""residual ← residual + x, then x ← residual / rms(residual) · weight: both in place, in bfloat16.

It is the call that FlashInfer has, so that its kernel is a baseline: --baselines=pytorch-eager,flashinfer.
"""

from __future__ import annotations

from typing import Any

import torch

inout = ("x", "residual")  # their values before the call matter, so they are restored before each call
atol, rtol = 1e-3, 1e-2  # bfloat16 has 8 bits, one unit of which is up to 0.8 %


def shapes(M: int, N: int, **_: Any) -> dict[str, tuple[int, ...]]:  # noqa: N803
    return {"x": (M, N), "residual": (M, N), "weight": (N,)}


def reference(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    baseline: str | None = None,
    **_: Any,
) -> dict[str, torch.Tensor] | None:
    if baseline == "flashinfer":
        import flashinfer

        flashinfer.fused_add_rmsnorm(x, residual, weight, eps)
        return None  # it has written both in place
    total = x.float() + residual.float()
    scale = torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + eps)
    return {"x": (total * scale * weight.float()).bfloat16(), "residual": total.bfloat16()}
