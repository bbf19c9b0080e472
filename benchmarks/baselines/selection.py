"""Selections of other libraries, called as ``(x,)``."""

from __future__ import annotations

from benchmarks.baselines.loading import load
from kernelmark import Case, Implementation, Unavailable

__all__ = ["flashinfer_topk"]


def flashinfer_topk(case: Case) -> Implementation | Unavailable:
    """Adapt FlashInfer's radix selection, asked to sort what it selects as the case wants it."""
    kernel = load("flashinfer", "top_k", install="flashinfer-python")
    if isinstance(kernel, Unavailable):
        return kernel
    k = case.workload.k
    return Implementation(run=lambda x: tuple(kernel(x, k, sorted=True)), backend="FlashInfer CUDA")
