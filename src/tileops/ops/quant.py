"""Quantisers."""

from __future__ import annotations

import torch

from kernelmark.roofline import Work
from tileops.ops.base import Op, dtype_of

__all__ = ["Int8QuantOp"]


class Int8QuantOp(Op):
    """Quantise each row to int8 with a scale of its own, so that its largest magnitude becomes 127.

    Returns the values and the float32 scales, ``(rows, 1)``. Where a tie rounds to is not defined.

    Args:
        rows: Rows of the input.
        columns: Length of a row.
        dtype: Of the input.
        floor: Smallest magnitude that a row's largest element counts as, so that a row of zeros has a scale.
    """

    def __init__(self, *, rows: int, columns: int, dtype: str, floor: float = 1e-10) -> None:
        super().__init__()
        self.rows, self.columns, self.dtype, self.floor = rows, columns, dtype_of(dtype), floor

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Find the scales, then round."""
        wide = x.float()
        largest = wide.abs().amax(-1, keepdim=True).clamp(min=self.floor)
        values = (wide * (127 / largest)).round().clamp(-127, 127)
        return values.to(torch.int8), largest / 127

    def launch(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute with one kernel, which reads each row once."""
        from tileops.kernels.int8_quant import int8_quant

        return int8_quant(x.contiguous(), floor=self.floor)

    def eval_roofline(self) -> Work:
        """A magnitude, a comparison, a multiplication and a rounding an element."""
        elements = self.rows * self.columns
        return Work(4 * elements, elements * (self.dtype.itemsize + 1) + 4 * self.rows)
