"""Norms."""

from __future__ import annotations

import torch

from kernelmark.roofline import Work
from tileops.ops.base import Op, dtype_of

__all__ = ["RMSNormFwdOp"]


class RMSNormFwdOp(Op):
    """``y = x · weight / sqrt(mean(x²) + eps)`` over the last dimension, in float32 whatever the dtype.

    Args:
        rows: Rows of the input.
        columns: Length of a row.
        dtype: Of ``x``, ``weight`` and ``y``.
        eps: Added to the mean of squares.
    """

    pipeline = "norm"

    def __init__(self, *, rows: int, columns: int, dtype: str, eps: float = 1e-6) -> None:
        super().__init__()
        self.rows, self.columns, self.dtype, self.eps = rows, columns, dtype_of(dtype), eps

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Scale each row, round once at the end."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale * weight.float()).to(x.dtype)

    def launch(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute with one kernel, which reads each row once."""
        from tileops.kernels.rms_norm import rms_norm

        return rms_norm(x.contiguous(), weight.contiguous(), eps=self.eps)

    def eval_roofline(self) -> Work:
        """A square, its addition, a scaling and a weighting an element."""
        elements, size = self.rows * self.columns, self.dtype.itemsize
        return Work(4 * elements, (2 * elements + self.columns) * size)
