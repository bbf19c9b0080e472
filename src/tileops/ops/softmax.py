"""Softmax."""

from __future__ import annotations

import torch

from kernelmark.roofline import Work
from tileops.ops.base import Op, dtype_of

__all__ = ["SoftmaxFwdOp"]


class SoftmaxFwdOp(Op):
    """Softmax over the last dimension, summed in float32.

    Args:
        rows: Rows of the input.
        columns: Length of a row.
        dtype: Of input and output.
    """

    pipeline = "softmax"

    def __init__(self, *, rows: int, columns: int, dtype: str) -> None:
        super().__init__()
        self.rows, self.columns, self.dtype = rows, columns, dtype_of(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Subtract the maximum, take exponentials, divide by their sum."""
        wide = x.float()
        weights = torch.exp(wide - wide.amax(-1, keepdim=True))
        return (weights / weights.sum(-1, keepdim=True)).to(x.dtype)

    def launch(self, x: torch.Tensor) -> torch.Tensor:
        """Compute with one kernel, which reads each row once where it fits in registers."""
        from tileops.kernels.softmax import softmax

        return softmax(x.contiguous())

    def eval_roofline(self) -> Work:
        """A comparison, a subtraction, an exponential, an addition and a division an element."""
        elements = self.rows * self.columns
        return Work(5 * elements, 2 * elements * self.dtype.itemsize)
