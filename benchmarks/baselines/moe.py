"""Steps of a mixture of experts of other libraries."""

from __future__ import annotations

import torch

from benchmarks.baselines.loading import load
from kernelmark import Case, Implementation, Unavailable

__all__ = ["vllm_moe_combine"]


def vllm_moe_combine(case: Case) -> Implementation | Unavailable:
    """Adapt vLLM's unpermute, which weighs and adds; the output of shared experts is added after it.

    vLLM folds the factor on the routed sum into the weights when it routes, so that is done beforehand.
    """
    module = "vllm.model_executor.layers.fused_moe.moe_permute_unpermute"
    kernel = load(module, "moe_unpermute", install="vllm")
    if isinstance(kernel, Unavailable):
        return kernel
    expert_out, positions, weights, out, shared = case.inputs
    scaled, private = weights * case.workload.scale, torch.empty_like(out)

    def run(expert_out: torch.Tensor, rows: torch.Tensor, shared: torch.Tensor | None) -> torch.Tensor:
        kernel(private, expert_out, scaled, rows)
        return private if shared is None else private.add_(shared)

    return Implementation(
        run=run,
        args=(expert_out, positions.flatten(), shared),
        owned_outputs=(private,),
        backend="vLLM CUDA",
    )
