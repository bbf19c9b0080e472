"""Softmax: inputs, reference and check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from kernelmark.manifest import WorkloadCall
from workloads.numerics import Elementwise, Exact

__all__ = ["SoftmaxWorkload"]

_RTOL = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Two units in the last place of the 16-bit types; in float32 what the order of the additions may change."""

_ATOL = {torch.float32: 1e-9, torch.float16: 1e-7, torch.bfloat16: 1e-9}
"""Far below the mean of a row, which is 8e-6 for the longest: the usual 1e-3 would let zeros pass."""


@dataclass(frozen=True, slots=True)
class SoftmaxWorkload:
    """Scores of unit variance, as attention scales them."""

    rows: int
    columns: int
    dtype: torch.dtype

    @classmethod
    def from_call(cls, call: WorkloadCall) -> Self:
        """Build from a manifest call of ``SoftmaxFwdOp``."""
        return cls(call.dims["M"], call.dims["N"], getattr(torch, call.dtypes["T"]))

    def gen_inputs(self) -> tuple[torch.Tensor]:
        """Make ``(x,)``."""
        return (torch.randn(self.rows, self.columns).to(self.dtype),)

    def reference(self, x: torch.Tensor) -> torch.Tensor:
        """Let torch do it; its kernels sum in float32 too."""
        return torch.softmax(x, -1)

    def verification(self) -> Exact:
        """Compare relative to the probabilities themselves, which are small."""
        return Exact(Elementwise(atol=_ATOL[self.dtype], rtol=_RTOL[self.dtype]))
