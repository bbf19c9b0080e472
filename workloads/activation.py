"""Activations written back into their argument: inputs, reference and check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F

from kernelmark.manifest import WorkloadCall
from workloads.numerics import Exact

__all__ = ["SiluInplaceWorkload"]


@dataclass(frozen=True, slots=True)
class SiluInplaceWorkload:
    """The output of a convolution with batch normalisation, which is about standard normal."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def from_call(cls, call: WorkloadCall) -> Self:
        """Build from a manifest call of ``SiluInplaceOp``."""
        return cls(call.tensors["x"].shape, getattr(torch, call.dtypes["T"]))

    def gen_inputs(self) -> tuple[torch.Tensor]:
        """Make ``(x,)``."""
        return (torch.randn(self.shape, dtype=self.dtype),)

    def reference(self, x: torch.Tensor) -> torch.Tensor:
        """Compute in float32, and leave ``x`` as it is: only the value is at issue here."""
        return F.silu(x.float()).to(self.dtype)

    def verification(self) -> Exact:
        """Compare all of it at the dtype's tolerance; an element depends on one input only."""
        return Exact()
