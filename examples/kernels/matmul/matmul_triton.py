"""c = a · b in Triton, one tile a program; 32-bit arithmetic throughout, as the reference has."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

BLOCK = 32


@triton.jit
def matmul(a, b, c, M, N, K, BLOCK: tl.constexpr):  # noqa: N803
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inner = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK):
        k = start + inner
        left = tl.load(a + rows * K + k[None, :], mask=(rows < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + columns, mask=(k[:, None] < K) & (columns < N), other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    tl.store(c + rows * N + columns, total, mask=(rows < M) & (columns < N))


def setup(M: int = 512, N: int = 512, K: int = 512, **_: Any) -> dict[str, Any]:  # noqa: N803
    inputs = {"a": torch.randn(M, K), "b": torch.randn(K, N), "c": torch.empty(M, N), "M": M, "N": N, "K": K}
    return {"inputs": inputs, "outputs": ["c"]}


def run_kernel(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, M: int, N: int, K: int) -> None:  # noqa: N803
    matmul[(triton.cdiv(M, BLOCK), triton.cdiv(N, BLOCK))](a, b, c, M, N, K, BLOCK=BLOCK)
