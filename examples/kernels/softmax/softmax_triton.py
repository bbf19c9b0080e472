"""Softmax over rows in Triton, one program a row."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):  # noqa: N803 - Triton's habit for compile-time arguments
    """Compute one row."""
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=inside, other=-float("inf"))
    weights = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + offsets, weights / tl.sum(weights, axis=0), mask=inside)


def setup(M: int = 1024, N: int = 1024, **_: Any) -> dict[str, Any]:  # noqa: N803 - as on the command line
    """Make every argument of the kernel and of the reference, on the default device, which is the run's."""
    inputs = {"x": torch.randn(M, N), "out": torch.empty(M, N), "M": M, "N": N}
    return {"inputs": inputs, "outputs": ["out"]}


def run_kernel(x: torch.Tensor, out: torch.Tensor, M: int, N: int) -> None:  # noqa: N803
    """Write the answer into ``out``."""
    softmax[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
