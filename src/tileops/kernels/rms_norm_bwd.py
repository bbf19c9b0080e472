"""The backward pass of RMSNorm as two Triton kernels.

The first walks rows: it writes dx and keeps, in each program, the sum of the weight gradients of the
rows it saw. The second adds these partial sums in a fixed order, so the result does not change from
run to run as it would with atomics.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

__all__ = ["rms_norm_bwd"]

# Enough programs to fill a large GPU once; more would only add partial sums to write and read again.
_MAX_PROGRAMS = 256
_PARTIALS = 32
_COLUMNS = 64


@triton.jit
def _rows_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    dx_ptr,
    partial_ptr,
    rows,
    columns,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    weight = tl.load(weight_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    dweight = tl.zeros((BLOCK,), dtype=tl.float32)
    start = program.to(tl.int64) * columns
    for row in range(program, rows, tl.num_programs(0)):
        dy = tl.load(dy_ptr + start + offsets, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + start + offsets, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        normed = x * rstd
        scaled = dy * weight
        projection = tl.sum(scaled * normed, axis=0) / columns
        dx = (scaled - normed * projection) * rstd
        tl.store(dx_ptr + start + offsets, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        dweight += dy * normed
        start += tl.num_programs(0) * columns
    tl.store(partial_ptr + program.to(tl.int64) * columns + offsets, dweight, mask=inside)


@triton.jit
def _partials_kernel(
    partial_ptr, dweight_ptr, programs, columns, PARTIALS: tl.constexpr, COLUMNS: tl.constexpr
):
    offsets = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), dtype=tl.float32)
    for first in range(0, programs, PARTIALS):
        index = first + tl.arange(0, PARTIALS)
        inside = (index < programs)[:, None] & (offsets < columns)[None, :]
        tile = tl.load(partial_ptr + index[:, None] * columns + offsets[None, :], mask=inside, other=0.0)
        total += tl.sum(tile, axis=0)
    tl.store(dweight_ptr + offsets, total.to(dweight_ptr.dtype.element_ty), mask=offsets < columns)


def rms_norm_bwd(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of ``y = x * rstd * weight`` with respect to ``x`` and ``weight``.

    Args:
        dy: Gradient of the output, ``(rows, columns)``.
        x: The forward input, of the same shape.
        weight: ``(columns,)``.
        rstd: ``(rows,)`` in float32: one over the root mean square, as the forward pass saved it.
    """
    rows, columns = x.shape
    programs = min(rows, _MAX_PROGRAMS)
    dx, dweight = torch.empty_like(x), torch.empty_like(weight)
    partial = torch.empty((programs, columns), dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(columns)
    warps = min(max(block // 512, 4), 16)
    _rows_kernel[(programs,)](dy, x, weight, rstd, dx, partial, rows, columns, BLOCK=block, num_warps=warps)
    _partials_kernel[(triton.cdiv(columns, _COLUMNS),)](
        partial, dweight, programs, columns, PARTIALS=_PARTIALS, COLUMNS=_COLUMNS
    )
    return dx, dweight
