"""Softmax of other libraries, called as ``(x,)``."""

from __future__ import annotations

from benchmarks.baselines.loading import load
from kernelmark import Case, Implementation, Unavailable

__all__ = ["liger_softmax"]


_LIGER_LONGEST = 65536
"""Liger holds a row in one program, and raises for a longer one."""


def liger_softmax(case: Case) -> Implementation | Unavailable:
    """Adapt Liger's Triton kernel."""
    function = load("liger_kernel.ops.softmax", "LigerSoftmaxFunction", install="liger-kernel")
    if isinstance(function, Unavailable):
        return function
    columns = case.inputs[0].shape[-1]
    if columns > _LIGER_LONGEST:
        return Unavailable(f"Liger's softmax takes rows of up to {_LIGER_LONGEST}, not {columns}")
    return Implementation(run=function.apply, backend="Liger Triton")  # pyright: ignore[reportFunctionMemberAccess]
