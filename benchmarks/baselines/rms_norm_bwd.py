"""Backward passes of RMSNorm of other libraries, called as ``(dy, x, weight, rstd)``."""

from __future__ import annotations

from benchmarks.baselines.loading import load
from kernelmark import Case, Implementation, Unavailable

__all__ = ["liger_rms_norm_bwd"]


def liger_rms_norm_bwd(case: Case) -> Implementation | Unavailable:
    """Adapt Liger's Triton kernels, without the autograd around them, whose thread a timer cannot follow.

    Their number for the ``gemma`` casting mode is 1: compute in float32 and round once.
    """
    kernel = load("liger_kernel.ops.rms_norm", "rms_norm_backward", install="liger-kernel")
    if isinstance(kernel, Unavailable):
        return kernel
    settings = load("liger_kernel.ops.utils", "calculate_settings", install="liger-kernel")
    if isinstance(settings, Unavailable):
        return settings
    block, warps = settings(case.inputs[1].shape[-1])
    return Implementation(
        run=lambda dy, x, weight, rstd: kernel(
            dy, x, weight, rstd, 0.0, 1, block, warps, in_place=False, row_mode=None
        ),
        backend="Liger Triton",
    )
