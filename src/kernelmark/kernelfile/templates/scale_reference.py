"""The right answer for y = 2x, element by element."""

from __future__ import annotations

from typing import Any

import torch


def reference(x: torch.Tensor, **_: Any) -> torch.Tensor:
    """Compute the answer; every parameter of the solution is passed by name."""
    return 2 * x
