"""The ops that work token by token, on the CPU: compiled, as a composition, and what they say of their work."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tileops.ops
from kernelmark import probe
from kernelmark.harness import library_at
from tileops.ops import AttentionFwdOp, Int8QuantOp, MoeCombineOp, RMSNormBwdOp, SiluInplaceOp, TopKOp, base
from tileops.ops.base import Op

Inputs = tuple[Any, ...]
Sample = Callable[[torch.dtype], tuple[Op, Inputs, tuple[torch.Tensor, ...]]]

# The largest error that passes, in multiples of the output's largest magnitude.
ROUNDING = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}


def _silu(dtype: torch.dtype) -> tuple[Op, Inputs, tuple[torch.Tensor, ...]]:
    x = torch.randn(3, 5, 7, dtype=dtype)
    expected = torch.nn.functional.silu(x.double())
    return SiluInplaceOp(elements=105, dtype=_name(dtype)), (x,), (expected,)


def _norm(dtype: torch.dtype) -> tuple[Op, Inputs, tuple[torch.Tensor, ...]]:
    x, dy, weight = (torch.randn(shape, dtype=dtype) for shape in ((9, 33), (9, 33), (33,)))
    wide, wide_weight = x.double().requires_grad_(), weight.double().requires_grad_()
    rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    expected = torch.autograd.grad(wide * rstd * wide_weight, (wide, wide_weight), dy.double())
    op = RMSNormBwdOp(rows=9, columns=33, dtype=_name(dtype))
    return op, (dy, x, weight, rstd.detach().flatten().float()), expected


def _combine(dtype: torch.dtype) -> tuple[Op, Inputs, tuple[torch.Tensor, ...]]:
    expert_out, shared = torch.randn(15, 11, dtype=dtype), torch.randn(5, 11, dtype=dtype)
    positions, weights = torch.randperm(15, dtype=torch.int32).view(5, 3), torch.rand(5, 3)
    routed = (expert_out.double()[positions.long()] * weights.double()[..., None]).sum(1)
    op = MoeCombineOp(tokens=5, top_k=3, hidden=11, dtype=_name(dtype), scale=2.5, shared=True)
    out = torch.full((5, 11), math.nan, dtype=dtype)
    return op, (expert_out, positions, weights, out, shared), (2.5 * routed + shared.double(),)


def _topk(dtype: torch.dtype) -> tuple[Op, Inputs, tuple[torch.Tensor, ...]]:
    x = torch.stack([torch.randperm(37) for _ in range(4)]).to(dtype)
    expected = torch.sort(x, dim=-1, descending=True)
    op = TopKOp(rows=4, columns=37, k=5, dtype=_name(dtype))
    return op, (x,), (expected.values[:, :5], expected.indices[:, :5])


def _attention(
    dtype: torch.dtype, *, queries: int = 9, keys: int = 13, causal: bool = True
) -> tuple[Op, Inputs, tuple[torch.Tensor, ...]]:
    q = torch.randn(2, queries, 4, 16, dtype=dtype)
    k, v = (torch.randn(2, keys, 2, 16, dtype=dtype) for _ in range(2))
    wide_k, wide_v = (t.double().repeat_interleave(2, 2) for t in (k, v))
    scores = torch.einsum("bshd,bthd->bhst", q.double(), wide_k) / 4
    if causal:
        seen = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
        scores = scores.masked_fill(~seen, -math.inf)
    expected = torch.einsum("bhst,bthd->bshd", scores.softmax(-1), wide_v)
    op = AttentionFwdOp(
        batch=2,
        q_length=queries,
        kv_length=keys,
        heads=4,
        kv_heads=2,
        head_dim=16,
        dtype=_name(dtype),
        causal=causal,
    )
    return op, (q, k, v), (expected, scores.logsumexp(-1) / math.log(2))


SAMPLES: dict[str, Sample] = {
    "silu": _silu,
    "norm": _norm,
    "combine": _combine,
    "topk": _topk,
    "attention": _attention,
}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _worst(got: Any, expected: tuple[torch.Tensor, ...]) -> float:
    outputs = got if isinstance(got, tuple) else (got,)
    assert [t.shape for t in outputs] == [t.shape for t in expected]
    return max(
        ((mine.double() - right.double()).abs().max() / right.double().abs().max()).item()
        for mine, right in zip(outputs, expected, strict=True)
    )


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(base.CPU_VARIABLE, "torch")


@pytest.mark.skipif(base.cxx_compiler() is None, reason="inductor needs a C++ compiler; there is none here")
@pytest.mark.parametrize("name", SAMPLES)
def test_the_path_through_inductor_agrees_with_float64(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(base.CPU_VARIABLE, "inductor")
    op, inputs, expected = SAMPLES[name](torch.float32)
    assert _worst(op(*inputs), expected) <= ROUNDING["float32"]
    # Inductor generates no code for a selection alone: it calls torch's.
    assert op.backend == ("torch inductor (library calls)" if name == "topk" else "torch inductor")


@pytest.mark.skipif(not probe.module("torch_mlir"), reason=probe.module("torch_mlir").detail)
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("name", SAMPLES)
def test_the_path_through_mlir_agrees_with_float64(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(base.CPU_VARIABLE, "mlir")
    op, inputs, expected = SAMPLES[name](getattr(torch, dtype))
    assert _worst(op(*inputs), expected) <= 2 * ROUNDING[dtype]
    assert op.backend.startswith(f"mlir {op.pipeline} (")


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("name", SAMPLES)
def test_the_composition_alone_agrees_with_float64(name: str, dtype: str) -> None:
    op, inputs, expected = SAMPLES[name](getattr(torch, dtype))
    assert _worst(op(*inputs), expected) <= 2 * ROUNDING[dtype]
    assert op.backend == "torch composition"


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    ("queries", "keys", "causal"),
    [(1, 1, True), (1, 40, True), (130, 130, True), (129, 300, True), (130, 20, False)],
)
def test_attention_is_right_where_its_blocks_of_queries_do_not_come_out_even(
    queries: int, keys: int, causal: bool
) -> None:
    op, inputs, expected = _attention(torch.float32, queries=queries, keys=keys, causal=causal)
    assert _worst(op(*inputs), expected) <= ROUNDING["float32"]


@pytest.mark.usefixtures("uncompiled")
def test_silu_is_in_its_argument_afterwards_and_the_argument_is_returned() -> None:
    op, (x,), (expected,) = _silu(torch.float32)
    assert op(x) is x
    assert _worst(x, (expected,)) <= ROUNDING["float32"]


@pytest.mark.usefixtures("uncompiled")
def test_combine_writes_into_out_returns_it_and_reads_nothing_from_it() -> None:
    op, inputs, (expected,) = _combine(torch.float32)
    out = inputs[3]
    assert op(*inputs) is out
    assert _worst(out, (expected,)) <= ROUNDING["float32"]


@pytest.mark.usefixtures("uncompiled")
def test_combine_without_shared_experts_takes_none_or_nothing() -> None:
    op, (expert_out, positions, weights, out, shared), (expected,) = _combine(torch.float32)
    for absent in ((None,), ()):
        assert _worst(op(expert_out, positions, weights, out, *absent), (expected - shared,)) <= 1e-6


@pytest.mark.parametrize("compiler", [None, base.cxx_compiler()], ids=["composed", "compiled"])
def test_a_quantised_row_is_within_half_a_step_and_its_largest_magnitude_is_127(
    compiler: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "cxx_compiler", lambda: compiler)
    x = torch.randn(6, 50)
    x[2] = 0
    values, scales = Int8QuantOp(rows=6, columns=50, dtype="float32")(x)
    assert (values.dtype, scales.shape) == (torch.int8, (6, 1))
    assert ((values * scales - x).abs() <= (0.5 + 1e-4) * scales).all()
    assert values.abs().amax(-1).tolist() == [127, 127, 0, 127, 127, 127]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_tensor_off_the_cpu_goes_to_the_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, inputs, _ = SAMPLES[name](torch.float32)
    monkeypatch.setattr(op, "launch", lambda *given: given)
    elsewhere = tuple(x.to("meta") if isinstance(x, torch.Tensor) else x for x in inputs)
    assert op(*elsewhere) == elsewhere
    assert op.backend == "triton"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TopKOp(rows=1, columns=4, k=5, dtype="float32"), "k=5 of 4 columns"),
        (lambda: TopKOp(rows=1, columns=4, k=0, dtype="float32"), "k=0 of 4 columns"),
        (lambda: SiluInplaceOp(elements=1, dtype="half precision"), "'half precision'"),
        (
            lambda: AttentionFwdOp(
                batch=1, q_length=1, kv_length=1, heads=3, kv_heads=2, head_dim=8, dtype="float32"
            ),
            "2 key heads among 3",
        ),
        (
            lambda: AttentionFwdOp(
                batch=1, q_length=9, kv_length=8, heads=1, kv_heads=1, head_dim=8, dtype="float32"
            ),
            "9 causal queries over 8 keys",
        ),
    ],
)
def test_sizes_that_mean_nothing_are_refused_with_the_numbers(build: Callable[[], Op], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(("name", "written"), [("silu", 0), ("combine", 3)])
def test_a_kernel_refuses_to_write_through_strides(name: str, written: int) -> None:
    pytest.importorskip("triton")
    op, inputs, _ = SAMPLES[name](torch.float32)
    given = list(inputs)
    given[written] = torch.empty(given[written].shape[::-1]).permute(*reversed(range(given[written].dim())))
    with pytest.raises(ValueError, match="contiguous"):
        op.launch(*given)


@pytest.mark.spec("T37")
@pytest.mark.parametrize(
    "name", ["SiluInplaceOp", "RMSNormBwdOp", "MoeCombineOp", "Int8QuantOp", "TopKOp", "AttentionFwdOp"]
)
def test_an_op_counts_the_work_of_each_call_as_the_manifest_does(
    name: str, request: pytest.FixtureRequest
) -> None:
    calls = library_at(request.config.rootpath).manifest.op(name).calls()
    assert calls
    for call in calls:
        work = getattr(tileops.ops, name)(**call.arguments).eval_roofline()
        assert (work.flops, work.bytes, work.compute) == tuple(call.roofline())


def test_a_causal_mask_leaves_out_the_pairs_that_it_hides() -> None:
    work = {
        causal: AttentionFwdOp(
            batch=1, q_length=3, kv_length=5, heads=1, kv_heads=1, head_dim=1, dtype="float32", causal=causal
        ).eval_roofline()
        for causal in (True, False)
    }
    # Three queries see 3, 4 and 5 keys; each pair costs two products of two operations.
    assert (work[True].flops, work[False].flops) == (4 * 12, 4 * 15)
