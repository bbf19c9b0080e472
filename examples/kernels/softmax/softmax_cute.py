"""Softmax over rows in CuTe DSL, one warp a row: the maximum and the sum in one pass, the answer in a second."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

WARP, ROWS = 32, 4
"""Threads in a warp, and warps in a block."""
WIDTH = 4
"""Floats in the 16 bytes that a thread loads at once; N is a multiple of it."""


@cute.kernel
def softmax(x: cute.Tensor, out: cute.Tensor):
    """Compute as many rows as the block has warps."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    row, lane = block * ROWS + thread // WARP, thread % WARP
    if row < x.shape[0]:
        source = cute.zipped_divide(x[row, None], (WIDTH,))
        target = cute.zipped_divide(out[row, None], (WIDTH,))
        count = cute.size(source, mode=[1])
        largest, total = -cutlass.Float32.inf, cutlass.Float32(0.0)
        for i in range(lane, count, WARP):
            values = source[None, i].load()
            raised = cute.arch.fmax(largest, values.reduce(cute.ReductionOp.MAX, -cutlass.Float32.inf, 0))
            # what was summed up so far is relative to the maximum of before
            total *= cute.math.exp(largest - raised)
            total += cute.math.exp(values - raised).reduce(cute.ReductionOp.ADD, 0.0, 0)
            largest = raised
        row_largest = cute.arch.warp_reduction(largest, cute.arch.fmax)
        total *= cute.math.exp(largest - row_largest)
        scale = 1.0 / cute.arch.warp_reduction(total, lambda a, b: a + b)
        for i in range(lane, count, WARP):
            target[None, i].store(cute.math.exp(source[None, i].load() - row_largest) * scale)


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor):
    """Start the kernel."""
    blocks = (x.shape[0] + ROWS - 1) // ROWS
    softmax(x, out).launch(grid=[blocks, 1, 1], block=[ROWS * WARP, 1, 1])


_compiled: dict[tuple[int, int], Any] = {}


def setup(M: int = 1024, N: int = 1024, **_: Any) -> dict[str, Any]:  # noqa: N803 - as on the command line
    """Make every argument of the kernel and of the reference, on the default device, which is the run's."""
    inputs = {"x": torch.randn(M, N), "out": torch.empty(M, N), "M": M, "N": N}
    return {"inputs": inputs, "outputs": ["out"]}


def run_kernel(x: torch.Tensor, out: torch.Tensor, **_: Any) -> None:
    """Write the answer into ``out``; the kernel is compiled in the first call."""
    key = (x.data_ptr(), out.data_ptr())
    if key not in _compiled:
        arguments = (from_dlpack(x, assumed_align=16), from_dlpack(out, assumed_align=16))
        _compiled[key] = (cute.compile(launch, *arguments), arguments)
    compiled, arguments = _compiled[key]
    compiled(*arguments)
