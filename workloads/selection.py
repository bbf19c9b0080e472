"""Selections: inputs without ties, so that the indices too have one right answer; reference and check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from kernelmark.manifest import WorkloadCall
from workloads.numerics import Exact

__all__ = ["TopKWorkload"]

# Rows differ in their values, not only in the order of them, by one of this many offsets.
_OFFSETS = 64
# A power of two, so that no value is rounded; it brings 256 experts' scores to within ±12.
_STEP = 2.0**-4


@dataclass(frozen=True, slots=True)
class TopKWorkload:
    """Each row holds as many different multiples of one step as it is long, in random order.

    Raises:
        ValueError: the dtype does not have that many such values.
    """

    rows: int
    columns: int
    k: int
    dtype: torch.dtype

    def __post_init__(self) -> None:
        # eps = 2^-p means that all integers up to 2^(p+1) are values of the dtype.
        distinct = round(2 / torch.finfo(self.dtype).eps)
        if self.columns // 2 + _OFFSETS > distinct:
            raise ValueError(
                f"{self.columns} columns of {self.dtype} cannot all differ: it holds the integers up to"
                f" {distinct} exactly; use a wider dtype or at most {2 * (distinct - _OFFSETS)} columns"
            )

    @classmethod
    def from_call(cls, call: WorkloadCall) -> Self:
        """Build from a manifest call of ``TopKOp``."""
        return cls(call.dims["M"], call.dims["V"], call.dims["K"], getattr(torch, call.dtypes["T"]))

    def gen_inputs(self) -> tuple[torch.Tensor]:
        """Make ``(x,)``."""
        order = torch.rand(self.rows, self.columns).argsort(-1)
        offsets = torch.randint(_OFFSETS, (self.rows, 1))
        return (((order - self.columns // 2 + offsets) * _STEP).to(self.dtype),)

    def reference(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Give values in descending order, and their indices."""
        values, indices = torch.topk(x, self.k)
        return values, indices

    def verification(self) -> Exact:
        """Compare values at the dtype's tolerance and indices exactly."""
        return Exact()
