"""Batched matrix products of other libraries, called as ``(a, b)``."""

from __future__ import annotations

import torch

from benchmarks.baselines.loading import load
from kernelmark import Case, Implementation, Unavailable

__all__ = ["sglang_bmm", "vllm_bmm"]


def vllm_bmm(case: Case) -> Implementation | Unavailable:
    """Adapt vLLM's batch-invariant product."""
    return _batch_invariant(case, "vllm.model_executor.layers.batch_invariant", "vLLM", install="vllm")


def sglang_bmm(case: Case) -> Implementation | Unavailable:
    """Adapt SGLang's batch-invariant product."""
    module = "sglang.srt.batch_invariant_ops.batch_invariant_ops"
    return _batch_invariant(case, module, "SGLang", install="sglang")


def _batch_invariant(case: Case, module: str, name: str, *, install: str) -> Implementation | Unavailable:
    kernel = load(module, "bmm_batch_invariant", install=install)
    if isinstance(kernel, Unavailable):
        return kernel
    if case.workload.dtype == torch.float32:
        # Triton's default for tl.dot, and neither library asks for another.
        return Unavailable(
            f"{name}'s batch-invariant product multiplies float32 as TF32; it has none in float32"
        )
    return Implementation(run=kernel, backend=f"{name} Triton")
