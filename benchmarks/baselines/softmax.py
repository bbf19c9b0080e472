"""Softmax of other libraries, called as ``(x,)``."""

from __future__ import annotations

from benchmarks.baselines.loading import load
from kernelmark import Implementation, Unavailable

__all__ = ["liger_softmax"]


def liger_softmax() -> Implementation | Unavailable:
    """Adapt Liger's Triton kernel."""
    function = load("liger_kernel.ops.softmax", "LigerSoftmaxFunction", install="liger-kernel")
    if isinstance(function, Unavailable):
        return function
    return Implementation(run=function.apply, backend="Liger Triton")  # pyright: ignore[reportFunctionMemberAccess]
