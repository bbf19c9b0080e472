"""The right answer for a softmax over rows, and the shapes of its buffers."""

from __future__ import annotations

from typing import Any

import torch

atol, rtol = 1e-5, 1e-4


def shapes(M: int, N: int, **_: Any) -> dict[str, tuple[int, ...]]:  # noqa: N803 - as on the command line
    """Give the shape of each buffer of ``solve``."""
    return {"x": (M, N), "out": (M, N)}


def reference(x: torch.Tensor, **_: Any) -> torch.Tensor:
    """Compute the answer; every parameter of the solution is passed by name."""
    return torch.softmax(x, dim=-1)
