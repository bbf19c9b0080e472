"""Symmetric int8 quantisation of each row as a Triton kernel: one pass, the row stays in registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

__all__ = ["int8_quant"]


@triton.jit
def _quant_kernel(x_ptr, values_ptr, scales_ptr, columns, floor, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=inside, other=0.0).to(tl.float32)
    largest = tl.maximum(tl.max(tl.abs(x), axis=0), floor)
    # floor(v + 1/2): Triton has no portable round, and which way a tie goes is within the op's bound.
    stepped = tl.floor(x * (127.0 / largest) + 0.5)
    clamped = tl.minimum(tl.maximum(stepped, -127.0), 127.0)
    tl.store(values_ptr + row * columns + offsets, clamped.to(tl.int8), mask=inside)
    tl.store(scales_ptr + row, largest / 127.0)


def int8_quant(x: torch.Tensor, *, floor: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return int8 values, and float32 scales of shape ``(rows, 1)``, whose product is near ``x``.

    Args:
        x: ``(rows, columns)``.
        floor: Smallest magnitude that a row's largest element counts as, so that a row of zeros has a scale.
    """
    rows, columns = x.shape
    values = torch.empty((rows, columns), dtype=torch.int8, device=x.device)
    scales = torch.empty((rows, 1), dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(columns)
    warps = min(max(block // 512, 4), 16)
    _quant_kernel[(rows,)](x, values, scales, columns, floor, BLOCK=block, num_warps=warps)
    return values, scales
