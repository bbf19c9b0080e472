"""Backward passes of norms."""

from __future__ import annotations

import torch

from kernelmark.roofline import Work
from tileops.ops.base import Op, dtype_of

__all__ = ["RMSNormBwdOp"]


class RMSNormBwdOp(Op):
    """Gradients of ``y = x · rstd · weight`` for ``x`` and ``weight``, ``rstd`` being what ``x`` makes it.

    Sums are in float32, whatever the dtype.

    Args:
        rows: Rows of ``x``.
        columns: Length of a row.
        dtype: Of ``dy``, ``x`` and ``weight``; ``rstd`` is float32.
    """

    def __init__(self, *, rows: int, columns: int, dtype: str) -> None:
        super().__init__()
        self.rows, self.columns, self.dtype = rows, columns, dtype_of(dtype)

    def forward(
        self, dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Differentiate by hand: dx = rstd · (g - x̂ · mean(g · x̂)), with g = dy · weight and x̂ = x · rstd."""
        gradient, statistic = dy.float(), rstd[:, None]
        normed = x.float() * statistic
        scaled = gradient * weight.float()
        projection = (scaled * normed).mean(-1, keepdim=True)
        dx = (scaled - normed * projection) * statistic
        return dx.to(x.dtype), (gradient * normed).sum(0).to(weight.dtype)

    def launch(
        self, dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute with two kernels: rows, then the sum of the weight gradients."""
        from tileops.kernels.rms_norm_bwd import rms_norm_bwd

        return rms_norm_bwd(dy.contiguous(), x.contiguous(), weight.contiguous(), rstd.contiguous())

    def eval_roofline(self) -> Work:
        """Nine operations an element, as the manifest lists them; every tensor crosses the bus once."""
        elements, size = self.rows * self.columns, self.dtype.itemsize
        return Work(9 * elements, (3 * elements + 2 * self.columns) * size + 4 * self.rows)
