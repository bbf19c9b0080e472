"""c = a · b, in 32-bit floats."""

from __future__ import annotations

from typing import Any

import torch

atol, rtol = 1e-3, 1e-3


def shapes(M: int, N: int, K: int, **_: Any) -> dict[str, tuple[int, ...]]:  # noqa: N803
    # the two largest of M, N and K would make one of these too small
    return {"a": (M, K), "b": (K, N), "c": (M, N)}


def reference(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, **_: Any) -> None:
    torch.matmul(a, b, out=c)
