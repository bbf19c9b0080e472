"""Attention of torch and of other libraries, called as ``(q, k, v)`` and giving the output first."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.baselines.loading import load
from kernelmark import Case, Implementation, Unavailable

__all__ = ["flashinfer_attention", "sglang_attention", "torch_sdpa", "vllm_attention"]

Tensors = tuple[torch.Tensor, ...]


def torch_sdpa(case: Case) -> Implementation:
    """Adapt torch's fused attention; its causal flag is right only where both sequences are as long."""
    q, k, _ = case.inputs
    mask = case.workload.mask(q.device) if q.shape[1] != k.shape[1] else None
    flag = case.workload.causal and mask is None

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
        heads_first = (t.transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(*heads_first, attn_mask=mask, is_causal=flag, enable_gqa=True)
        return (out.transpose(1, 2),)

    return Implementation(run=run, backend="torch SDPA")


def flashinfer_attention(case: Case) -> Implementation | Unavailable:
    """Adapt FlashInfer's prefill of one request."""
    kernel: Any = load("flashinfer", "single_prefill_with_kv_cache", install="flashinfer-python")
    refused = _refused(case, kernel, "FlashInfer")
    if refused is not None:
        return refused
    batch, causal = case.inputs[0].shape[0], case.workload.causal
    if batch != 1:
        return Unavailable(f"FlashInfer's single prefill takes one sequence, not {batch}")

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
        out, lse = kernel(q[0], k[0], v[0], causal=causal, return_lse=True)
        return out[None], lse

    return Implementation(run=run, backend="FlashInfer")


def vllm_attention(case: Case) -> Implementation | Unavailable:
    """Adapt vLLM's build of FlashAttention."""
    kernel = load("vllm.vllm_flash_attn", "flash_attn_varlen_func", install="vllm")
    return _refused(case, kernel, "vLLM's FlashAttention") or _packed(case, kernel, "vLLM FlashAttention")


def sglang_attention(case: Case) -> Implementation | Unavailable:
    """Adapt SGLang's build of FlashAttention 3."""
    kernel = load("sgl_kernel.flash_attn", "flash_attn_varlen_func", install="sgl-kernel")
    return _refused(case, kernel, "SGLang's FlashAttention") or _packed(
        case, kernel, "SGLang FlashAttention 3"
    )


def _refused(case: Case, kernel: Any, name: str) -> Unavailable | None:
    if isinstance(kernel, Unavailable):
        return kernel
    dtype = case.inputs[0].dtype
    if dtype in (torch.float16, torch.bfloat16):
        return None
    return Unavailable(f"{name} is for float16 and bfloat16, not {dtype}")


def _packed(case: Case, kernel: Any, backend: str) -> Implementation:
    """Call a kernel that takes all sequences end to end, with the offsets where they begin."""
    q, k, _ = case.inputs
    (batch, q_length), kv_length = q.shape[:2], k.shape[1]
    starts = {
        f"cu_seqlens_{which}": torch.arange(batch + 1, dtype=torch.int32, device=q.device) * length
        for which, length in (("q", q_length), ("k", kv_length))
    }
    causal = case.workload.causal

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Tensors:
        out, lse, *_ = kernel(
            q.flatten(0, 1),
            k.flatten(0, 1),
            v.flatten(0, 1),
            max_seqlen_q=q_length,
            max_seqlen_k=kv_length,
            causal=causal,
            return_softmax_lse=True,
            **starts,
        )
        return out.view_as(q), lse

    return Implementation(run=run, backend=backend)
