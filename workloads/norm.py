"""Norms: inputs, reference and check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F

from kernelmark.manifest import WorkloadCall
from workloads.numerics import Exact

__all__ = ["RMSNormWorkload"]


@dataclass(frozen=True, slots=True)
class RMSNormWorkload:
    """Hidden states of several sizes of row, and weights around 1 as they are after training."""

    rows: int
    columns: int
    dtype: torch.dtype
    eps: float

    @classmethod
    def from_call(cls, call: WorkloadCall) -> Self:
        """Build from a manifest call of ``RMSNormFwdOp``."""
        return cls(call.dims["M"], call.dims["H"], getattr(torch, call.dtypes["T"]), call.params["eps"])

    def gen_inputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Make ``(x, weight)``; the rows' sizes run over a factor of 8, so that the norm has work to do."""
        sizes = torch.logspace(-0.5, 0.4, self.rows)[:, None]
        x = torch.randn(self.rows, self.columns) * sizes
        weight = 1 + 0.1 * torch.randn(self.columns)
        return x.to(self.dtype), weight.to(self.dtype)

    def reference(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Compute in float32 and round once, as the op is declared to."""
        return F.rms_norm(x.float(), (self.columns,), weight.float(), self.eps).to(x.dtype)

    def verification(self) -> Exact:
        """Compare element by element at the dtype's own tolerance."""
        return Exact()
