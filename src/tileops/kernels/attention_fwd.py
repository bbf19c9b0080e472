"""Attention forward as a Triton kernel: one pass over the keys with a running softmax.

Tensors are ``(batch, sequence, heads, head_dim)`` and contiguous. Several query heads may share one
key and value head. The last query sees the last key, whatever the two lengths.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

__all__ = ["attention_fwd"]

_LOG2_E = 1.4426950408889634


@triton.jit
def _over_keys(
    q,
    total,
    peak,
    norm,
    k_ptr,
    v_ptr,
    first,
    last,
    rows,
    kv_length,
    row_stride,
    shift,
    scale,
    head_dim,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    dims = tl.arange(0, BLOCK_D)
    in_head = dims < head_dim
    for start in range(first, last, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        in_row = columns < kv_length
        places = columns.to(tl.int64)[:, None] * row_stride + dims[None, :]
        loaded = in_row[:, None] & in_head[None, :]
        k = tl.load(k_ptr + places, mask=loaded, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        if MASKED:
            visible = in_row[None, :]
            if CAUSAL:
                visible = visible & (columns[None, :] <= rows[:, None] + shift)
            scores = tl.where(visible, scores, float("-inf"))
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        weights = tl.exp2(scores - new_peak[:, None])
        decay = tl.exp2(peak - new_peak)
        norm = norm * decay + tl.sum(weights, axis=1)
        v = tl.load(v_ptr + places, mask=loaded, other=0.0)
        total = total * decay[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        peak = new_peak
    return total, peak, norm


@triton.jit
def _attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    q_length,
    kv_length,
    heads,
    group,
    head_dim,
    scale,
    CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = tl.program_id(1) % heads
    kv_heads = heads // group
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, BLOCK_D)
    q_start = batch * q_length * heads * head_dim + head * head_dim
    kv_start = batch * kv_length * kv_heads * head_dim + (head // group) * head_dim
    places = q_start + rows.to(tl.int64)[:, None] * heads * head_dim + dims[None, :]
    stored = (rows < q_length)[:, None] & (dims < head_dim)[None, :]
    q = tl.load(q_ptr + places, mask=stored, other=0.0)

    total = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)
    peak = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    norm = tl.zeros((BLOCK_M,), dtype=tl.float32)
    shift = kv_length - q_length
    # Keys up to `whole` are seen by every row of this block; from there to `last` a mask decides.
    last = kv_length
    whole = kv_length // BLOCK_N * BLOCK_N
    if CAUSAL:
        last = tl.minimum(kv_length, (tl.program_id(0) + 1) * BLOCK_M + shift)
        whole = tl.minimum(whole, (tl.program_id(0) * BLOCK_M + shift + 1) // BLOCK_N * BLOCK_N)
    total, peak, norm = _over_keys(
        q, total, peak, norm, k_ptr + kv_start, v_ptr + kv_start, 0, whole, rows, kv_length,
        kv_heads * head_dim, shift, scale, head_dim, False, CAUSAL, BLOCK_N, BLOCK_D,
    )  # fmt: skip
    total, peak, norm = _over_keys(
        q, total, peak, norm, k_ptr + kv_start, v_ptr + kv_start, whole, last, rows, kv_length,
        kv_heads * head_dim, shift, scale, head_dim, True, CAUSAL, BLOCK_N, BLOCK_D,
    )  # fmt: skip
    out = total / norm[:, None]
    tl.store(out_ptr + places, out.to(out_ptr.dtype.element_ty), mask=stored)
    lse_places = tl.program_id(1).to(tl.int64) * q_length + rows
    tl.store(lse_ptr + lse_places, peak + tl.log2(norm), mask=rows < q_length)


def attention_fwd(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return softmax(q kᵀ · scale) v, and the log-sum-exp of the scaled scores in base 2.

    Args:
        q: ``(batch, q_length, heads, head_dim)``.
        k: ``(batch, kv_length, kv_heads, head_dim)``; ``kv_heads`` divides ``heads``.
        v: The shape of ``k``.
        scale: Factor on the scores.
        causal: Hide from each query the keys after it, both sequences ending together; then
            ``q_length`` is at most ``kv_length``.
    """
    batch, q_length, heads, head_dim = q.shape
    kv_length, kv_heads = k.shape[1], k.shape[2]
    out = torch.empty_like(q)
    lse = torch.empty((batch, heads, q_length), dtype=torch.float32, device=q.device)
    # Sizes that fit the registers of sm_90 with head_dim 128; with more keys a block, float32 spills.
    block_m, block_n, warps, stages = (64, 16, 8, 2) if q.dtype == torch.float32 else (128, 64, 8, 3)
    _attention_kernel[(triton.cdiv(q_length, block_m), batch * heads)](
        q,
        k,
        v,
        out,
        lse,
        q_length,
        kv_length,
        heads,
        heads // kv_heads,
        head_dim,
        scale * _LOG2_E,
        CAUSAL=causal,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_D=max(16, triton.next_power_of_2(head_dim)),
        num_warps=warps,
        num_stages=stages,
    )
    return out, lse
