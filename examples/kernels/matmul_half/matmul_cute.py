"""c = a · b in half precision in CuTe DSL: tensor cores, fed from global memory, with no staging; right before fast."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

TILE_M, TILE_N, TILE_K = 128, 128, 32
"""M, N and K are multiples of these."""
WARPS = (2, 2, 1)
THREADS = 32 * WARPS[0] * WARPS[1]


@cute.kernel
def matmul(mma: cute.TiledMma, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    across, down, _ = cute.arch.block_idx()
    part = mma.get_slice(thread)
    # b is read as its transpose, N × K, which is how tensor cores name their second operand
    b_transposed = cute.make_tensor(b.iterator, cute.select(b.layout, mode=[1, 0]))
    from_a = part.partition_A(cute.local_tile(a, (TILE_M, TILE_K), (down, None)))
    from_b = part.partition_B(cute.local_tile(b_transposed, (TILE_N, TILE_K), (across, None)))
    to_c = part.partition_C(cute.local_tile(c, (TILE_M, TILE_N), (down, across)))
    left = mma.make_fragment_A(from_a[None, None, None, 0])
    right = mma.make_fragment_B(from_b[None, None, None, 0])
    total = cute.make_rmem_tensor(to_c.shape, cutlass.Float32)
    total.fill(0.0)
    for k in range(cute.size(from_a, mode=[3])):
        cute.autovec_copy(from_a[None, None, None, k], left)
        cute.autovec_copy(from_b[None, None, None, k], right)
        cute.gemm(mma, total, left, right, total)
    rounded = cute.make_rmem_tensor(to_c.shape, cutlass.Float16)
    rounded.store(total.load().to(cutlass.Float16))
    cute.autovec_copy(rounded, to_c)


@cute.jit
def launch(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    atom = cute.nvgpu.warp.MmaF16BF16Op(cutlass.Float16, cutlass.Float32, (16, 8, 16))
    mma = cute.make_tiled_mma(atom, WARPS)
    grid = [c.shape[1] // TILE_N, c.shape[0] // TILE_M, 1]
    matmul(mma, a, b, c).launch(grid=grid, block=[THREADS, 1, 1])


_compiled: dict[tuple[int, ...], Any] = {}


def setup(M: int = 512, N: int = 512, K: int = 512, **_: Any) -> dict[str, Any]:  # noqa: N803
    uneven = [
        f"{name}={n}" for name, n, tile in (("M", M, TILE_M), ("N", N, TILE_N), ("K", K, TILE_K)) if n % tile
    ]
    if uneven:
        raise ValueError(
            f"{', '.join(uneven)}: M, N and K must be multiples of {TILE_M}, {TILE_N} and {TILE_K}"
        )
    inputs = {
        "a": torch.randn(M, K, dtype=torch.float16),
        "b": torch.randn(K, N, dtype=torch.float16),
        "c": torch.empty(M, N, dtype=torch.float16),
    }
    return {"inputs": inputs, "outputs": ["c"]}


def run_kernel(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    key = (a.data_ptr(), b.data_ptr(), c.data_ptr())
    if key not in _compiled:
        arguments = tuple(from_dlpack(each, assumed_align=16) for each in (a, b, c))
        _compiled[key] = (cute.compile(launch, *arguments), arguments)
    compiled, arguments = _compiled[key]
    compiled(*arguments)
