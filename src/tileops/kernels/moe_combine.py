"""The combine step of a mixture of experts as a Triton kernel: gather, weigh, add.

Expert outputs lie grouped by expert; ``positions`` says where each token's rows are. Nothing here knows
how tokens were routed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

__all__ = ["moe_combine"]

_BLOCK = 1024


@triton.jit
def _combine_kernel(
    expert_out_ptr,
    positions_ptr,
    weights_ptr,
    shared_ptr,
    out_ptr,
    hidden,
    scale,
    TOP_K: tl.constexpr,
    HAS_SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < hidden
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for choice in range(TOP_K):
        row = tl.load(positions_ptr + token * TOP_K + choice).to(tl.int64)
        weight = tl.load(weights_ptr + token * TOP_K + choice)
        values = tl.load(expert_out_ptr + row * hidden + offsets, mask=inside, other=0.0)
        total += weight * values.to(tl.float32)
    total *= scale
    if HAS_SHARED:
        shared = tl.load(shared_ptr + token * hidden + offsets, mask=inside, other=0.0)
        total += shared.to(tl.float32)
    tl.store(out_ptr + token * hidden + offsets, total.to(out_ptr.dtype.element_ty), mask=inside)


def moe_combine(
    expert_out: torch.Tensor,
    positions: torch.Tensor,
    weights: torch.Tensor,
    shared: torch.Tensor | None,
    *,
    scale: float,
    out: torch.Tensor,
) -> None:
    """Write each token's weighted sum of expert outputs into ``out``.

    Args:
        expert_out: ``(tokens * top_k, hidden)``, rows grouped by expert.
        positions: ``(tokens, top_k)``: the rows of ``expert_out`` that belong to each token.
        weights: ``(tokens, top_k)`` in float32.
        shared: ``(tokens, hidden)`` output of the shared experts, added unscaled; None where there is none.
        scale: Factor on the routed sum.
        out: ``(tokens, hidden)``.
    """
    tokens, top_k = positions.shape
    hidden = expert_out.shape[-1]
    _combine_kernel[(tokens, triton.cdiv(hidden, _BLOCK))](
        expert_out,
        positions,
        weights,
        expert_out if shared is None else shared,
        out,
        hidden,
        scale,
        TOP_K=top_k,
        HAS_SHARED=shared is not None,
        BLOCK=_BLOCK,
    )
