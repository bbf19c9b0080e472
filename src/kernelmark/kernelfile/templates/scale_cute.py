"""Doubles each element in CuTe DSL, one thread an element."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def double(x: cute.Tensor, out: cute.Tensor):
    """Double one element."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        out[index] = x[index] * 2.0


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor, blocks: cutlass.Constexpr):
    """Start the kernel."""
    double(x, out).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1])


_compiled: dict[tuple[int, int], Any] = {}


def setup(N: int = 1 << 20, **_: Any) -> dict[str, Any]:  # noqa: N803 - as on the command line
    """Make every argument of the kernel and of the reference, on the default device, which is the run's."""
    inputs = {"x": torch.randn(N), "out": torch.empty(N), "N": N}
    return {"inputs": inputs, "outputs": ["out"]}


def run_kernel(x: torch.Tensor, out: torch.Tensor, **_: Any) -> None:
    """Write the answer into ``out``; the kernel is compiled in the first call."""
    key = (x.data_ptr(), out.data_ptr())
    if key not in _compiled:
        arguments = (from_dlpack(x), from_dlpack(out))
        blocks = (x.numel() + THREADS - 1) // THREADS
        _compiled[key] = (cute.compile(launch, *arguments, blocks), arguments)
    compiled, arguments = _compiled[key]
    compiled(*arguments)
