"""c = a · b in half precision in Triton, one tile a program, sums in 32 bits."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 128, 256, 64
GROUP = 8
"""Rows of tiles that are worked on together, so that what they share of b stays in the L2."""


@triton.jit
def matmul(
    a, b, c, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,  # noqa: N803
):  # fmt: skip
    down, across = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    first = tl.program_id(0) // (GROUP * across) * GROUP
    height = min(down - first, GROUP)
    within = tl.program_id(0) % (GROUP * across)
    rows = (first + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    columns = within // height * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        left = tl.load(a + rows * k + inner[None, :], mask=(rows < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(
            b + inner[:, None] * n + columns, mask=(inner[:, None] < k) & (columns < n), other=0.0
        )
        total = tl.dot(left, right, total)
    tl.store(c + rows * n + columns, total.to(tl.float16), mask=(rows < m) & (columns < n))


def setup(M: int = 512, N: int = 512, K: int = 512, **_: Any) -> dict[str, Any]:  # noqa: N803
    inputs = {
        "a": torch.randn(M, K, dtype=torch.float16),
        "b": torch.randn(K, N, dtype=torch.float16),
        "c": torch.empty(M, N, dtype=torch.float16),
    }
    return {"inputs": inputs, "outputs": ["c"]}


def run_kernel(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    (m, k), n = a.shape, b.shape[1]
    programs = triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N)
    matmul[(programs,)](a, b, c, m, n, k, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, num_warps=8, num_stages=3)
