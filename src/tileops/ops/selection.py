"""Selections."""

from __future__ import annotations

import torch

from kernelmark.roofline import Work
from tileops.ops.base import Op, dtype_of

__all__ = ["TopKOp"]


class TopKOp(Op):
    """The k largest elements of each row in descending order, and their int64 indices.

    On a GPU the earlier of two equal elements is chosen; on a CPU, torch's choice.

    Args:
        rows: Rows of the input.
        columns: Length of a row.
        k: Elements to choose.
        dtype: Of the input.
    """

    # Qwen3's router, 128 columns: 2.2 s a call on two cores, where torch's own takes 2.8 ms.
    not_by_mlir = "mlir sorts whole rows, one comparison at a time"

    def __init__(self, *, rows: int, columns: int, k: int, dtype: str) -> None:
        super().__init__()
        if not 1 <= k <= columns:
            raise ValueError(f"TopKOp cannot choose k={k} of {columns} columns; k is 1 to {columns}")
        self.rows, self.columns, self.k, self.dtype = rows, columns, k, dtype_of(dtype)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Select with torch's own operation, which a compiler leaves as it is."""
        values, indices = torch.topk(x, self.k)
        return values, indices

    def launch(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute with one kernel, in as many rounds as the length of a row needs."""
        from tileops.kernels.topk import topk

        return topk(x.contiguous(), self.k)

    def eval_roofline(self) -> Work:
        """No selection looks at fewer than all elements once; comparisons count as operations."""
        size = self.dtype.itemsize
        return Work(self.rows * self.columns, self.rows * (self.columns * size + self.k * (size + 8)))
