"""RMSNorm of other libraries, each called as ``(x, weight)`` with the case's eps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.baselines.loading import load
from kernelmark import Case, Implementation, Unavailable

__all__ = ["flashinfer_rms_norm", "liger_rms_norm", "sglang_rms_norm", "vllm_rms_norm"]

Adapted = Implementation | Callable[..., Any] | Unavailable


def vllm_rms_norm(case: Case) -> Adapted:
    """Adapt vLLM's kernel, which writes into an output that it is given."""
    kernel = load("vllm._custom_ops", "rms_norm", install="vllm")
    if isinstance(kernel, Unavailable):
        return kernel
    out, eps = torch.empty_like(case.inputs[0]), case.workload.eps

    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        kernel(out, x, weight, eps)
        return out

    return Implementation(run=run, owned_outputs=(out,), backend="vLLM CUDA")


def sglang_rms_norm(case: Case) -> Adapted:
    """Adapt SGLang's kernel, which is for 16-bit types."""
    return _sixteen_bit(case, load("sgl_kernel", "rmsnorm", install="sgl-kernel"), "sgl_kernel")


def flashinfer_rms_norm(case: Case) -> Adapted:
    """Adapt FlashInfer's kernel, which is for 16-bit types."""
    return _sixteen_bit(case, load("flashinfer.norm", "rmsnorm", install="flashinfer-python"), "FlashInfer")


def liger_rms_norm(case: Case) -> Adapted:
    """Adapt Liger's Triton kernel; ``gemma`` is its name for computing in float32 and rounding once."""
    function = load("liger_kernel.ops.rms_norm", "LigerRMSNormFunction", install="liger-kernel")
    if isinstance(function, Unavailable):
        return function
    apply, eps = function.apply, case.workload.eps  # pyright: ignore[reportFunctionMemberAccess]
    return Implementation(
        run=lambda x, weight: apply(x, weight, eps, 0.0, "gemma", False), backend="Liger Triton"
    )


def _sixteen_bit(case: Case, kernel: Any, name: str) -> Adapted:
    if isinstance(kernel, Unavailable):
        return kernel
    dtype, eps = case.inputs[0].dtype, case.workload.eps
    if dtype not in (torch.float16, torch.bfloat16):
        return Unavailable(f"{name}'s RMSNorm is for float16 and bfloat16, not {dtype}")
    return Implementation(run=lambda x, weight: kernel(x, weight, eps), backend=name)
