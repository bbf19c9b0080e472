"""Per-row int8 quantisers of other libraries, called as ``(x,)``."""

from __future__ import annotations

from benchmarks.baselines.loading import load
from kernelmark import Implementation, Unavailable

__all__ = ["sglang_int8_quant", "vllm_int8_quant"]


def vllm_int8_quant() -> Implementation | Unavailable:
    """Adapt vLLM's quantiser, which also returns a zero point: none, as it is symmetric."""
    kernel = load("vllm._custom_ops", "scaled_int8_quant", install="vllm")
    if isinstance(kernel, Unavailable):
        return kernel
    return Implementation(run=lambda x: tuple(kernel(x)[:2]), backend="vLLM CUDA")


def sglang_int8_quant() -> Implementation | Unavailable:
    """Give SGLang's quantiser."""
    module = "sglang.srt.layers.quantization.int8_kernel"
    kernel = load(module, "per_token_quant_int8", install="sglang")
    if isinstance(kernel, Unavailable):
        return kernel
    return Implementation(run=kernel, backend="SGLang Triton")
