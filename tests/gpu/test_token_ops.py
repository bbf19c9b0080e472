"""The token ops' Triton kernels on a GPU: every manifest call, and sizes that no block divides."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops.ops
from kernelmark.harness import library_at
from kernelmark.verify import check_outputs
from tileops.ops import AttentionFwdOp, Int8QuantOp, MoeCombineOp, RMSNormBwdOp, SiluInplaceOp, TopKOp
from workloads.activation import SiluInplaceWorkload
from workloads.attention import AttentionFwdWorkload
from workloads.moe import MoeCombineWorkload
from workloads.norm_bwd import RMSNormBwdWorkload
from workloads.quant import Int8QuantWorkload
from workloads.selection import TopKWorkload

pytestmark = pytest.mark.gpu

OPS = ("SiluInplaceOp", "RMSNormBwdOp", "MoeCombineOp", "Int8QuantOp", "TopKOp", "AttentionFwdOp")
DTYPES = ("float32", "float16", "bfloat16")


def _check(op: Any, workload: Any) -> None:
    with torch.device("cuda"):
        torch.manual_seed(20)
        inputs = workload.gen_inputs()
        if isinstance(workload, RMSNormBwdWorkload):
            inputs = (*inputs, workload.forward(*inputs[1:])[1])
    expected = workload.reference(*inputs)
    got = op(*inputs)
    torch.cuda.synchronize()
    assert op.backend == "triton"
    verdict = check_outputs(got, expected, workload.verification())
    assert verdict.passed, verdict.message


@pytest.mark.parametrize("name", OPS)
def test_a_kernel_is_right_on_every_call_of_the_manifest(name: str, request: pytest.FixtureRequest) -> None:
    library = library_at(request.config.rootpath)
    for call in library.manifest.op(name).calls():
        _check(getattr(tileops.ops, name)(**call.arguments), library.entries[name].build(call))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 1023, 4097])
def test_silu_ends_where_its_argument_ends(count: int, dtype: str) -> None:
    _check(
        SiluInplaceOp(elements=count, dtype=dtype),
        SiluInplaceWorkload((count,), getattr(torch, dtype)),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(1, 33), (261, 131), (1000, 5000)])
def test_the_gradients_take_any_number_of_rows_and_columns(rows: int, columns: int, dtype: str) -> None:
    _check(
        RMSNormBwdOp(rows=rows, columns=columns, dtype=dtype),
        RMSNormBwdWorkload(rows, columns, getattr(torch, dtype)),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "top_k", "hidden", "shared"), [(1, 1, 7, False), (37, 3, 1030, True)])
def test_the_combine_takes_any_hidden_size(
    tokens: int, top_k: int, hidden: int, shared: bool, dtype: str
) -> None:
    _check(
        MoeCombineOp(tokens=tokens, top_k=top_k, hidden=hidden, dtype=dtype, scale=2.5, shared=shared),
        MoeCombineWorkload(tokens, top_k, hidden, getattr(torch, dtype), 2.5, shared),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (9, 300), (5, 20000)])
def test_the_quantiser_takes_any_row_length(rows: int, columns: int, dtype: str) -> None:
    _check(
        Int8QuantOp(rows=rows, columns=columns, dtype=dtype),
        Int8QuantWorkload(rows, columns, getattr(torch, dtype), 1e-10),
    )


@pytest.mark.parametrize(
    ("columns", "k", "dtype"),
    [
        (1, 1, "float32"),
        (7, 7, "bfloat16"),
        (131, 8, "bfloat16"),
        (2049, 5, "float16"),
        (50257, 50, "float32"),
        (5000, 1500, "float32"),
    ],
)
def test_the_selection_takes_any_row_length_and_k(columns: int, k: int, dtype: str) -> None:
    _check(
        TopKOp(rows=5, columns=columns, k=k, dtype=dtype), TopKWorkload(5, columns, k, getattr(torch, dtype))
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "queries", "keys", "heads", "kv_heads", "dim", "causal"),
    [
        (1, 1, 1, 1, 1, 16, True),
        (2, 37, 37, 4, 2, 40, True),
        (1, 70, 150, 6, 2, 64, True),
        (1, 200, 77, 2, 2, 128, False),
        (3, 129, 513, 8, 1, 96, True),
    ],
)
def test_attention_takes_any_lengths_heads_and_head_size(
    batch: int, queries: int, keys: int, heads: int, kv_heads: int, dim: int, causal: bool, dtype: str
) -> None:
    op = AttentionFwdOp(
        batch=batch,
        q_length=queries,
        kv_length=keys,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        dtype=dtype,
        causal=causal,
    )
    shapes = (batch, queries, heads, dim), (batch, keys, kv_heads, dim)
    workload = AttentionFwdWorkload(*shapes, getattr(torch, dtype), causal)
    _check(op, workload)


def test_the_log_sum_exp_is_in_base_2() -> None:
    op = AttentionFwdOp(batch=2, q_length=37, kv_length=50, heads=4, kv_heads=2, head_dim=64, dtype="float32")
    workload = AttentionFwdWorkload((2, 37, 4, 64), (2, 50, 2, 64), torch.float32, True)
    with torch.device("cuda"):
        inputs = workload.gen_inputs()
    _, lse = op(*inputs)
    _, natural = workload.reference(*inputs)
    torch.testing.assert_close(lse, natural / torch.tensor(2.0).log().item(), rtol=1e-5, atol=1e-5)


def test_two_runs_of_the_gradients_agree_bit_for_bit() -> None:
    op, workload = (
        RMSNormBwdOp(rows=1000, columns=4096, dtype="float32"),
        RMSNormBwdWorkload(1000, 4096, torch.float32),
    )
    with torch.device("cuda"):
        dy, x, weight = workload.gen_inputs()
        rstd = workload.forward(x, weight)[1]
    first, second = (op(dy, x, weight, rstd) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
