"""The Triton kernels that work token by token, run on the CPU by Triton's interpreter, against float64.

The interpreter is chosen when a kernel is defined, so one child process runs everything and reports the
largest errors; each test holds one of them against what the dtype allows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

# The largest error that passes, in multiples of the output's largest magnitude.
ROUNDING = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}
DTYPES = tuple(ROUNDING)


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", ["silu", "dx", "dweight", "combine", "combine with shared experts"])
def test_an_output_is_right_to_the_rounding_of_its_dtype(
    errors: dict[str, float], kernel: str, dtype: str
) -> None:
    assert errors[f"{kernel}, {dtype}"] <= ROUNDING[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_quantised_values_lie_within_half_a_step_of_the_input(errors: dict[str, float], dtype: str) -> None:
    assert errors[f"quant steps, {dtype}"] <= 0.5 + 1e-4
    assert errors[f"quant scales, {dtype}"] <= 1e-6


def test_a_row_of_zeros_quantises_to_zeros_with_the_smallest_scale(errors: dict[str, float]) -> None:
    assert errors["quant of zeros"] == 0
    assert errors["scale of zeros"] == pytest.approx(1e-10 / 127, rel=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ["one chunk", "several rounds", "all of a row", "one column"])
def test_topk_gives_the_values_and_indices_that_torch_gives(
    errors: dict[str, float], shape: str, dtype: str
) -> None:
    assert errors[f"topk {shape}, {dtype}"] == 0


def test_topk_orders_infinities_and_puts_nan_first(errors: dict[str, float]) -> None:
    assert errors["topk of special values"] == 0


def test_the_earlier_of_two_equal_values_is_chosen(errors: dict[str, float]) -> None:
    assert errors["topk of ties"] == 0


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "shape",
    ["causal, shared heads", "causal, longer keys", "not causal", "causal, two blocks", "one query"],
)
def test_attention_and_its_log_sum_exp_are_right(errors: dict[str, float], shape: str, dtype: str) -> None:
    assert errors[f"attention {shape}, {dtype}"] <= ROUNDING[dtype]
    # From float32 sums whatever the dtype of the inputs.
    assert errors[f"lse {shape}, {dtype}"] <= ROUNDING["float32"]


# --- the child -------------------------------------------------------------------------------------


def _relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    return ((got.double() - expected.double()).abs().max() / expected.double().abs().max()).item()


def _elementwise(dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    from tileops.kernels.silu import silu

    # 1037: no block divides it; two programs.
    x = torch.randn(1037, dtype=dtype)
    out = torch.full_like(x, float("nan"))
    silu(x, out)
    yield "silu", _relative(out, torch.nn.functional.silu(x.double()))


def _norm(dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    from tileops.kernels.rms_norm_bwd import rms_norm_bwd

    # More rows than programs, so that a program walks several.
    rows, columns = 261, 131
    x = torch.randn(rows, columns, dtype=dtype)
    weight, dy = torch.randn(columns, dtype=dtype), torch.randn(rows, columns, dtype=dtype)
    wide, wide_weight = x.double().requires_grad_(), weight.double().requires_grad_()
    rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    expected = torch.autograd.grad(wide * rstd * wide_weight, (wide, wide_weight), dy.double())
    got = rms_norm_bwd(dy, x, weight, rstd.detach().flatten().float())
    for name, mine, right in zip(("dx", "dweight"), got, expected, strict=True):
        assert mine.dtype == dtype
        yield name, _relative(mine, right)


def _combine(dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    from tileops.kernels.moe_combine import moe_combine

    tokens, top_k, hidden = 5, 3, 1030
    expert_out = torch.randn(tokens * top_k, hidden, dtype=dtype)
    positions = torch.randperm(tokens * top_k, dtype=torch.int32).view(tokens, top_k)
    weights, shared = torch.rand(tokens, top_k), torch.randn(tokens, hidden, dtype=dtype)
    routed = 2.5 * (expert_out[positions.long()].double() * weights.double()[..., None]).sum(1)
    for name, extra in (("combine", None), ("combine with shared experts", shared)):
        out = torch.full((tokens, hidden), float("nan"), dtype=dtype)
        moe_combine(expert_out, positions, weights, extra, scale=2.5, out=out)
        yield name, _relative(out, routed if extra is None else routed + extra.double())


def _quant(dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    from tileops.kernels.int8_quant import int8_quant

    x = torch.randn(7, 300, dtype=dtype)
    values, scales = int8_quant(x, floor=1e-10)
    assert (values.dtype, scales.shape) == (torch.int8, (7, 1))
    yield "quant steps", ((values.double() * scales - x.double()).abs() / scales).max().item()
    yield "quant scales", _relative(scales, x.double().abs().amax(-1, keepdim=True) / 127)


def _topk(dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    from tileops.kernels.topk import topk

    shapes = {
        "one chunk": (5, 131, 8, 2048),
        "several rounds": (3, 201, 5, 16),
        "all of a row": (2, 7, 7, 2048),
        "one column": (2, 1, 1, 2048),
    }
    for name, (rows, columns, k, longest) in shapes.items():
        # Different multiples of 1/8 in each row, which every dtype here holds exactly.
        x = ((torch.rand(rows, columns).argsort(-1) - columns // 2) / 8).to(dtype)
        expected = torch.topk(x, k)
        values, indices = topk(x, k, longest=longest)
        wrong = (values != expected.values).sum() + (indices != expected.indices).sum()
        yield f"topk {name}", wrong.item()


def _special() -> Iterator[tuple[str, float]]:
    from tileops.kernels.int8_quant import int8_quant
    from tileops.kernels.topk import topk

    nan, inf = float("nan"), float("inf")
    values, indices = topk(torch.tensor([[1.0, nan, inf, 0.0, -1.0, -inf]]), 6)
    right = torch.tensor([[nan, inf, 1.0, 0.0, -1.0, -inf]])
    same = torch.equal(values.nan_to_num(nan=7), right.nan_to_num(nan=7))
    yield "topk of special values", float(not same or indices.tolist() != [[1, 2, 0, 3, 4, 5]])
    _, indices = topk(torch.tensor([[0.0, 2.0, -0.0, 2.0]]), 4)
    yield "topk of ties", float(indices.tolist() != [[1, 3, 0, 2]])
    zeros, scales = int8_quant(torch.zeros(1, 5), floor=1e-10)
    yield "quant of zeros", zeros.abs().max().item()
    yield "scale of zeros", scales.item()


def _attention(dtype: torch.dtype) -> Iterator[tuple[str, float]]:
    from tileops.kernels.attention_fwd import attention_fwd

    shapes = {
        "causal, shared heads": (2, 37, 37, 4, 2, 40, True),
        "causal, longer keys": (1, 40, 90, 3, 1, 64, True),
        "not causal": (1, 33, 100, 2, 2, 16, False),
        "causal, two blocks": (1, 130, 130, 1, 1, 32, True),
        "one query": (1, 1, 77, 2, 1, 64, True),
    }
    for name, (batch, queries, keys, heads, kv_heads, dim, causal) in shapes.items():
        q = torch.randn(batch, queries, heads, dim, dtype=dtype)
        k = torch.randn(batch, keys, kv_heads, dim, dtype=dtype)
        v = torch.randn(batch, keys, kv_heads, dim, dtype=dtype)
        out, lse = attention_fwd(q, k, v, scale=dim**-0.5, causal=causal)
        wide_k, wide_v = (t.double().repeat_interleave(heads // kv_heads, 2) for t in (k, v))
        scores = torch.einsum("bshd,bthd->bhst", q.double(), wide_k) * dim**-0.5
        if causal:
            seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
            scores = scores.masked_fill(~seen, float("-inf"))
        yield f"attention {name}", _relative(out, torch.einsum("bhst,bthd->bshd", scores.softmax(-1), wide_v))
        yield f"lse {name}", _relative(lse, scores.logsumexp(-1) / torch.tensor(2.0).log())


def _main() -> None:
    found = dict(_special())
    for name in DTYPES:
        dtype = getattr(torch, name)
        parts = [_elementwise, _norm, _combine, _quant, _topk]
        # tl.dot on bfloat16 is wrong in Triton 3.9's interpreter.
        parts += [_attention] if dtype is not torch.bfloat16 else []
        for part in parts:
            torch.manual_seed(20)
            found |= {f"{what}, {name}": error for what, error in part(dtype)}
    print(json.dumps(found))


if __name__ == "__main__":
    _main()
