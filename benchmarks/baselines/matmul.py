"""Batched matrix products of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.baselines.loading import load
from kernelmark import Unavailable

__all__ = ["sglang_bmm", "vllm_bmm"]


def vllm_bmm() -> Callable[..., Any] | Unavailable:
    """Give vLLM's batch-invariant product of ``(batch, m, k)`` and ``(batch, k, n)``."""
    return load("vllm.model_executor.layers.batch_invariant", "bmm_batch_invariant", install="vllm")


def sglang_bmm() -> Callable[..., Any] | Unavailable:
    """Give SGLang's batch-invariant product of the same."""
    module = "sglang.srt.batch_invariant_ops.batch_invariant_ops"
    return load(module, "bmm_batch_invariant", install="sglang")
