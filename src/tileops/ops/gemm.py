"""Matrix products."""

from __future__ import annotations

import torch

from kernelmark.roofline import Work
from tileops.ops.base import Op, dtype_of

__all__ = ["BmmFwdOp", "GemmFwdOp"]


class GemmFwdOp(Op):
    """``c = a @ b`` with sums in float32.

    Args:
        m: Rows of ``a``.
        n: Columns of ``b``.
        k: Columns of ``a``, rows of ``b``.
        dtype: Of all three.
    """

    pipeline = "matmul"

    def __init__(self, *, m: int, n: int, k: int, dtype: str) -> None:
        super().__init__()
        self.m, self.n, self.k, self.dtype = m, n, k, dtype_of(dtype)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return a @ b

    def launch(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Compute with the batched kernel, of one product."""
        from tileops.kernels.matmul import matmul

        return matmul(a[None], b[None])[0]

    def eval_roofline(self) -> Work:
        """A multiplication and an addition for each of ``m · n · k``; every matrix crosses the bus once."""
        elements = self.m * self.k + self.k * self.n + self.m * self.n
        return Work(
            2 * self.m * self.n * self.k, elements * self.dtype.itemsize, str(self.dtype).split(".")[1]
        )


class BmmFwdOp(Op):
    """``c[i] = a[i] @ b[i]`` with sums in float32.

    Args:
        batch: Products.
        m: Rows of each ``a``.
        n: Columns of each ``b``.
        k: Columns of each ``a``, rows of each ``b``.
        dtype: Of all three.
    """

    pipeline = "bmm"

    def __init__(self, *, batch: int, m: int, n: int, k: int, dtype: str) -> None:
        super().__init__()
        self.batch, self.m, self.n, self.k, self.dtype = batch, m, n, k, dtype_of(dtype)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        return torch.bmm(a, b)

    def launch(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Compute with one kernel over all products."""
        from tileops.kernels.matmul import matmul

        return matmul(a, b)

    def eval_roofline(self) -> Work:
        """As for one product, ``batch`` times."""
        elements = self.batch * (self.m * self.k + self.k * self.n + self.m * self.n)
        flops = 2 * self.batch * self.m * self.n * self.k
        return Work(flops, elements * self.dtype.itemsize, str(self.dtype).split(".")[1])
