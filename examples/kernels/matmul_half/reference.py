"""The right answer for a matrix product in half precision, and the shapes of its buffers."""

from __future__ import annotations

from typing import Any

import torch

# An element is a sum of K products of normal numbers, about √K large, and is rounded to 11 bits. cuBLAS may
# also round parts of that sum.
atol, rtol = 5e-2, 2e-3


def shapes(M: int, N: int, K: int, **_: Any) -> dict[str, tuple[int, ...]]:  # noqa: N803 - as on the command line
    """Give the shape of each buffer of ``solve``."""
    return {"a": (M, K), "b": (K, N), "c": (M, N)}


def reference(a: torch.Tensor, b: torch.Tensor, **_: Any) -> torch.Tensor:
    """Compute the answer; every parameter of the solution is passed by name."""
    return a @ b
