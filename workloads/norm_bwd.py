"""Backward passes of norms: inputs, what a forward pass saves, reference and check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from kernelmark.manifest import WorkloadCall
from workloads.numerics import Exact, Reduction

__all__ = ["RMSNormBwdWorkload"]


@dataclass(frozen=True, slots=True)
class RMSNormBwdWorkload:
    """Hidden states and a gradient, both about standard normal, and weights around one."""

    rows: int
    columns: int
    dtype: torch.dtype
    eps: float = 1e-6
    """Of the forward pass; the backward pass sees it only through ``rstd``."""

    @classmethod
    def from_call(cls, call: WorkloadCall) -> Self:
        """Build from a manifest call of ``RMSNormBwdOp``."""
        return cls(call.dims["M"], call.dims["H"], getattr(torch, call.dtypes["T"]))

    def gen_inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Make ``(dy, x, weight)``; the fourth argument of the op is what :meth:`forward` saves."""
        dy = torch.randn(self.rows, self.columns, dtype=self.dtype)
        x = torch.randn(self.rows, self.columns, dtype=self.dtype)
        weight = 1 + 0.1 * torch.randn(self.columns)
        return dy, x, weight.to(self.dtype)

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the norm's output, and ``rstd``, the float32 statistic that a forward pass saves."""
        wide = x.float()
        rstd = torch.rsqrt(wide.square().mean(-1) + self.eps)
        return (wide * rstd[:, None] * weight.float()).to(self.dtype), rstd

    def reference(
        self, dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Differentiate ``x · rstd · weight`` by hand in float32, ``rstd`` being a function of ``x``."""
        gradient, normed = dy.float(), x.float() * rstd[:, None]
        scaled = gradient * weight.float()
        projection = (scaled * normed).mean(-1, keepdim=True)
        dx = (scaled - normed * projection) * rstd[:, None]
        return dx.to(self.dtype), (gradient * normed).sum(0).to(self.dtype)

    def verification(self) -> Exact:
        """Compare dx at the dtype's tolerance, and dweight as the sum over rows that it is."""
        return Exact({1: Reduction(self.rows)})
