"""Steps of a mixture of experts."""

from __future__ import annotations

import torch

from kernelmark.roofline import Work
from tileops.ops.base import Op, dtype_of

__all__ = ["MoeCombineOp"]


class MoeCombineOp(Op):
    """Gather each token's expert outputs, add them by weight, and write the sum into ``out``.

    Called as ``op(expert_out, positions, weights, out, shared)``; ``shared`` is added unscaled, or None.
    Sums are in float32. Returns ``out``.

    Args:
        tokens: Rows of ``out``.
        top_k: Experts a token.
        hidden: Length of a row.
        dtype: Of ``expert_out``, ``out`` and ``shared``; ``weights`` are float32, ``positions`` int32.
        scale: Factor on the routed sum.
        shared: Whether there is output of shared experts to add.
    """

    def __init__(
        self, *, tokens: int, top_k: int, hidden: int, dtype: str, scale: float = 1.0, shared: bool = False
    ) -> None:
        super().__init__()
        self.tokens, self.top_k, self.hidden = tokens, top_k, hidden
        self.dtype, self.scale, self.shared = dtype_of(dtype), scale, shared

    def forward(
        self,
        expert_out: torch.Tensor,
        positions: torch.Tensor,
        weights: torch.Tensor,
        out: torch.Tensor,
        shared: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Gather, weigh, add, one expert after the other."""
        # Not one sum over a gathered axis, which inductor leaves scalar: 8.6 ms against 0.5 for 256 tokens of
        # 8 experts and hidden 2048.
        total = torch.zeros(out.shape, dtype=torch.float32, device=out.device)
        for choice in range(self.top_k):
            gathered = expert_out[positions[:, choice].long()].float()
            total = total + gathered * weights[:, choice, None]
        total = total * self.scale
        if shared is not None:
            total = total + shared.float()
        return out.copy_(total)

    def launch(
        self,
        expert_out: torch.Tensor,
        positions: torch.Tensor,
        weights: torch.Tensor,
        out: torch.Tensor,
        shared: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute with one kernel, which writes each row of ``out`` once."""
        from tileops.kernels.moe_combine import moe_combine

        if not out.is_contiguous():
            raise ValueError(f"MoeCombineOp writes into contiguous memory; out has strides {out.stride()}")
        moe_combine(
            expert_out.contiguous(),
            positions.contiguous(),
            weights.contiguous(),
            None if shared is None else shared.contiguous(),
            scale=self.scale,
            out=out,
        )
        return out

    def eval_roofline(self) -> Work:
        """A multiplication and an addition for each expert's element, a scaling, and an addition if shared."""
        out = self.tokens * self.hidden
        written_or_added = out * (1 + self.shared)
        return Work(
            flops=2 * out * self.top_k + written_or_added,
            bytes=(out * self.top_k + written_or_added) * self.dtype.itemsize + 8 * self.tokens * self.top_k,
        )
