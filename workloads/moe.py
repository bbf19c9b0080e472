"""Steps of a mixture of experts: inputs, reference and check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch

from kernelmark.manifest import WorkloadCall
from workloads.numerics import Exact

__all__ = ["MoeCombineWorkload"]


@dataclass(frozen=True, slots=True)
class MoeCombineWorkload:
    """Expert outputs grouped by expert, so that a token's rows lie anywhere; weights that sum to one."""

    tokens: int
    top_k: int
    hidden: int
    dtype: torch.dtype
    scale: float
    has_shared: bool

    @classmethod
    def from_call(cls, call: WorkloadCall) -> Self:
        """Build from a manifest call of ``MoeCombineOp``."""
        dims = call.dims
        return cls(
            dims["N"],
            dims["K"],
            dims["H"],
            getattr(torch, call.dtypes["T"]),
            call.params["scale"],
            "shared" in call.tensors,
        )

    def gen_inputs(self) -> tuple[torch.Tensor | None, ...]:
        """Make ``(expert_out, positions, weights, out, shared)``; no ``shared`` in the row makes it None."""
        rows = self.tokens * self.top_k
        expert_out = torch.randn(rows, self.hidden, dtype=self.dtype)
        positions = torch.randperm(rows, dtype=torch.int32).view(self.tokens, self.top_k)
        weights = torch.randn(self.tokens, self.top_k).softmax(-1)
        out = torch.zeros(self.tokens, self.hidden, dtype=self.dtype)
        shared = torch.randn(self.tokens, self.hidden, dtype=self.dtype) if self.has_shared else None
        return expert_out, positions, weights, out, shared

    def reference(
        self,
        expert_out: torch.Tensor,
        positions: torch.Tensor,
        weights: torch.Tensor,
        out: torch.Tensor,
        shared: torch.Tensor | None,
    ) -> torch.Tensor:
        """Gather, weigh and add in float32, into a new tensor: ``out`` says nothing but where to."""
        del out
        gathered = expert_out[positions.long()].float()
        total = (gathered * weights[..., None]).sum(1) * self.scale
        if shared is not None:
            total = total + shared.float()
        return total.to(self.dtype)

    def verification(self) -> Exact:
        """Compare all of it at the dtype's tolerance; the sums have at most a dozen terms."""
        return Exact()
