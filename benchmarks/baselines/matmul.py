"""Matrix products of other libraries, called as ``(a, b)``.

vLLM and SGLang have Triton products of their own, whose sums do not depend on how many rows a batch has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.baselines.loading import load
from kernelmark import Case, Implementation, Unavailable

__all__ = ["sglang_bmm", "sglang_gemm", "vllm_bmm", "vllm_gemm"]

_VLLM = "vllm.model_executor.layers.batch_invariant"
_SGLANG = "sglang.srt.batch_invariant_ops.batch_invariant_ops"


def vllm_gemm(case: Case) -> Implementation | Unavailable:
    """Adapt vLLM's product of two matrices."""
    return _adapted(case, "vLLM", load(_VLLM, "mm_batch_invariant", install="vllm"))


def sglang_gemm(case: Case) -> Implementation | Unavailable:
    """Adapt SGLang's product of two matrices."""
    return _adapted(case, "SGLang", load(_SGLANG, "mm_batch_invariant", install="sglang"))


def vllm_bmm(case: Case) -> Implementation | Unavailable:
    """Adapt vLLM's batched product."""
    return _adapted(case, "vLLM", load(_VLLM, "bmm_batch_invariant", install="vllm"))


def sglang_bmm(case: Case) -> Implementation | Unavailable:
    """Adapt SGLang's batched product."""
    return _adapted(case, "SGLang", load(_SGLANG, "bmm_batch_invariant", install="sglang"))


def _adapted(case: Case, name: str, kernel: Callable[..., Any] | Unavailable) -> Implementation | Unavailable:
    if isinstance(kernel, Unavailable):
        return kernel
    if case.workload.dtype == torch.float32:
        # Triton's default for tl.dot, and neither library asks for another.
        return Unavailable(
            f"{name}'s batch-invariant product multiplies float32 as TF32; it has none in float32"
        )
    return Implementation(run=kernel, backend=f"{name} Triton")
