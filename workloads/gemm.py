"""Matrix products: inputs, reference and check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from kernelmark.manifest import WorkloadCall
from workloads.numerics import Exact, Reduction

__all__ = ["BmmWorkload", "GemmWorkload"]


@dataclass(frozen=True, slots=True)
class GemmWorkload:
    """Two matrices of signed values; ``b`` is scaled so that the product has the size of its factors."""

    m: int
    n: int
    k: int
    dtype: torch.dtype
    batch: tuple[int, ...] = ()

    @classmethod
    def from_call(cls, call: WorkloadCall) -> Self:
        """Build from a manifest call of ``GemmFwdOp``."""
        dims = call.dims
        return cls(dims["M"], dims["N"], dims["K"], getattr(torch, call.dtypes["T"]))

    def gen_inputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Make ``(a, b)``."""
        a = torch.randn(*self.batch, self.m, self.k)
        b = torch.randn(*self.batch, self.k, self.n) / self.k**0.5
        return a.to(self.dtype), b.to(self.dtype)

    def reference(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Multiply with torch, which is also the baseline to beat."""
        return torch.matmul(a, b)

    def verification(self) -> Exact:
        """Allow what the order of ``k`` additions may change, and the rounding of the output."""
        return Exact(Reduction(length=self.k))


@dataclass(frozen=True, slots=True)
class BmmWorkload(GemmWorkload):
    """As ``GemmWorkload``, for each of a batch."""

    @classmethod
    def from_call(cls, call: WorkloadCall) -> Self:
        """Build from a manifest call of ``BmmFwdOp``."""
        dims = call.dims
        return cls(dims["M"], dims["N"], dims["K"], getattr(torch, call.dtypes["T"]), (dims["B"],))

    def reference(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Multiply with torch, which is also the baseline to beat."""
        return torch.bmm(a, b)
