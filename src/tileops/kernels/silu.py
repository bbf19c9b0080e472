"""SiLU as a Triton kernel: x · sigmoid(x), elementwise over contiguous memory.

The kernel writes to a second buffer; whether the result goes back into the argument is the op's affair.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

__all__ = ["silu"]

_BLOCK = 1024


@triton.jit
def _silu_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    y = x / (1.0 + tl.exp(-x))
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


def silu(x: torch.Tensor, out: torch.Tensor) -> None:
    """Write ``x * sigmoid(x)`` into ``out``, which has the size and dtype of ``x``."""
    count = x.numel()
    _silu_kernel[(triton.cdiv(count, _BLOCK),)](x, out, count, BLOCK=_BLOCK)
