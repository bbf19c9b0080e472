"""The workloads of the token ops: inputs as the manifest says, references right, checks that catch mistakes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from kernelmark.harness import library_at
from kernelmark.manifest import WorkloadCall
from kernelmark.verify import check_outputs, run_controls, vacuous
from workloads.activation import SiluInplaceWorkload
from workloads.attention import AttentionFwdWorkload
from workloads.moe import MoeCombineWorkload
from workloads.norm_bwd import RMSNormBwdWorkload
from workloads.quant import Int8QuantWorkload
from workloads.selection import TopKWorkload

OPS = ("SiluInplaceOp", "RMSNormBwdOp", "MoeCombineOp", "Int8QuantOp", "TopKOp", "AttentionFwdOp")

SMALL = {
    "silu": SiluInplaceWorkload((3, 40), torch.float16),
    "norm": RMSNormBwdWorkload(64, 48, torch.bfloat16),
    "combine": MoeCombineWorkload(9, 3, 40, torch.bfloat16, 2.5, True),
    "combine, nothing shared": MoeCombineWorkload(9, 3, 40, torch.float32, 1.0, False),
    "quant": Int8QuantWorkload(8, 256, torch.bfloat16, 1e-10),
    "topk": TopKWorkload(6, 128, 8, torch.bfloat16),
    "attention": AttentionFwdWorkload((1, 20, 4, 16), (1, 33, 2, 16), torch.bfloat16, True),
}


def _inputs(workload: Any) -> tuple[Any, ...]:
    torch.manual_seed(20)
    made = workload.gen_inputs()
    return (*made, workload.forward(*made[1:])[1]) if isinstance(workload, RMSNormBwdWorkload) else made


def _agree(tensors: Any, specs: dict[str, Any], names: tuple[str, ...]) -> None:
    assert len(tensors) == len(names)
    for name, tensor in zip(names, tensors, strict=True):
        if name in specs:
            assert (tuple(tensor.shape), str(tensor.dtype)) == (
                specs[name].shape,
                f"torch.{specs[name].dtype}",
            ), name
        else:
            assert tensor is None, name


@pytest.mark.spec("T4", "T5")
@pytest.mark.parametrize("op", OPS)
def test_inputs_and_outputs_are_what_the_manifest_says_for_every_call(
    op: str, request: pytest.FixtureRequest
) -> None:
    library = library_at(request.config.rootpath)
    entry = library.entries[op]
    for call in library.manifest.op(op).calls():
        with torch.device("meta"):  # shapes and dtypes need no memory
            workload = entry.build(call)
            inputs = workload.gen_inputs() if entry.inputs is None else entry.inputs(workload)
        _agree(inputs, call.tensors, call.signature)
        expected = workload.reference(*inputs)
        outputs = expected if isinstance(expected, tuple) else (expected,)
        _agree(outputs, call.outputs, tuple(call.outputs))


def _shuffled(output: torch.Tensor) -> torch.Tensor:
    return output.flatten()[torch.randperm(output.numel())].view_as(output)


@pytest.mark.spec("T19")
@pytest.mark.parametrize("name", SMALL)
def test_a_check_passes_the_reference_and_no_zeros_or_shuffled_answer(name: str) -> None:
    workload = SMALL[name]
    inputs = _inputs(workload)
    expected, declaration = workload.reference(*inputs), workload.verification()
    assert check_outputs(expected, expected, declaration).passed
    outputs = expected if isinstance(expected, tuple) else (expected,)
    for at in range(declaration.first or len(outputs)):
        for wrong in (torch.zeros_like(outputs[at]), _shuffled(outputs[at])):
            answer = (*outputs[:at], wrong, *outputs[at + 1 :])
            assert not check_outputs(answer if len(outputs) > 1 else wrong, expected, declaration).passed
    assert not vacuous(run_controls(expected, inputs, declaration))


@pytest.mark.parametrize("name", SMALL)
def test_a_reference_leaves_its_inputs_alone(name: str) -> None:
    workload = SMALL[name]
    inputs = _inputs(workload)
    before = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    workload.reference(*inputs)
    for now, then in zip(inputs, before, strict=True):
        assert now is then is None or torch.equal(now, then)


def test_the_gradients_are_those_of_autograd() -> None:
    workload = RMSNormBwdWorkload(64, 48, torch.float32)
    dy, x, weight, rstd = _inputs(workload)
    x, weight = x.double().requires_grad_(), weight.double().requires_grad_()
    y = torch.nn.functional.rms_norm(x, (48,), weight, eps=workload.eps)
    expected = torch.autograd.grad(y, (x, weight), dy.double())
    got = workload.reference(dy, x.detach().float(), weight.detach().float(), rstd)
    for mine, right in zip(got, expected, strict=True):
        torch.testing.assert_close(mine.double(), right, rtol=1e-5, atol=1e-5)


def test_the_forward_pass_saves_one_over_the_root_mean_square() -> None:
    workload = RMSNormBwdWorkload(64, 48, torch.float32)
    _, x, weight = workload.gen_inputs()
    y, rstd = workload.forward(x, weight)
    torch.testing.assert_close(y, torch.nn.functional.rms_norm(x, (48,), weight, eps=workload.eps))
    torch.testing.assert_close(rstd, 1 / (x.square().mean(-1) + workload.eps).sqrt())


def test_a_weight_gradient_that_lost_one_row_is_wrong() -> None:
    workload = RMSNormBwdWorkload(1024, 48, torch.float32)
    inputs = _inputs(workload)
    dy, x, _, rstd = inputs
    dx, dweight = expected = workload.reference(*inputs)
    short = dweight - dy[-1] * x[-1] * rstd[-1]
    assert not check_outputs((dx, short), expected, workload.verification()).passed


def test_the_routed_sum_is_scaled_and_the_shared_output_is_not() -> None:
    workload = MoeCombineWorkload(1, 2, 2, torch.float32, 10.0, True)
    expert_out = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    positions, weights = torch.tensor([[1, 0]], dtype=torch.int32), torch.tensor([[0.5, 0.25]])
    got = workload.reference(
        expert_out, positions, weights, torch.empty(1, 2), torch.tensor([[100.0, 200.0]])
    )
    assert got.tolist() == [[100 + 10 * (1.5 + 0.25), 200 + 10 * (2.0 + 0.5)]]


def test_each_row_of_the_experts_belongs_to_one_token() -> None:
    _, positions, weights, *_ = _inputs(SMALL["combine"])
    assert positions.flatten().sort().values.tolist() == list(range(27))
    torch.testing.assert_close(weights.sum(-1), torch.ones(9))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda values, scales: (values + 1, scales), "one step off everywhere"),
        (lambda values, scales: (values, scales * 1.001), "scales that lose the range"),
        (lambda values, scales: (values, scales * math.nan), "scales that are NaN"),
        (lambda values, scales: (values.roll(1, 0), scales), "the values of another row"),
    ],
)
def test_quantised_values_further_than_half_a_step_are_wrong(wrong: Any, why: str) -> None:
    workload = Int8QuantWorkload(8, 256, torch.float32, 1e-10)
    expected = workload.reference(*_inputs(workload))
    assert not check_outputs(wrong(*expected), expected, workload.verification()).passed, why


def test_a_tie_may_be_quantised_either_way_and_nothing_else_may() -> None:
    workload = Int8QuantWorkload(1, 256, torch.float32, 1e-10)
    (x,) = _inputs(workload)
    # A scale of exactly 1, a tie in column 3, and no tie in column 4.
    x.zero_()[0, :5] = torch.tensor([127.0, -3.0, 8.0, 2.5, 2.25])
    values, scales = expected = workload.reference(x)
    assert values[0, :5].tolist() == [127, -3, 8, 2, 2]
    for column, passes in ((3, True), (4, False)):
        other = values.clone()
        other[0, column] = 3
        assert check_outputs((other, scales), expected, workload.verification()).passed is passes


def test_the_quantisers_check_needs_the_input_that_it_is_about() -> None:
    workload = Int8QuantWorkload(1, 256, torch.float32, 1e-10)
    expected = workload.reference(torch.randn(1, 256))
    with pytest.raises(RuntimeError, match="gen_inputs"):
        workload.verification().check(expected, expected)


@pytest.mark.parametrize("workload", [SMALL["topk"], TopKWorkload(2, 128256, 50, torch.float32)])
def test_no_two_elements_of_a_row_are_equal(workload: TopKWorkload) -> None:
    (x,) = workload.gen_inputs()
    assert x.dtype == workload.dtype
    assert all(len(row.unique()) == workload.columns for row in x.float())


def test_rows_of_a_selection_differ_in_their_values() -> None:
    (x,) = TopKWorkload(512, 128, 8, torch.bfloat16).gen_inputs()
    assert len(x.amax(-1).unique()) > 16


def test_more_columns_than_a_dtype_has_values_are_refused() -> None:
    with pytest.raises(ValueError, match=r"1000 columns of torch\.bfloat16 .* at most 384 columns"):
        TopKWorkload(1, 1000, 8, torch.bfloat16)
    assert TopKWorkload(1, 384, 8, torch.bfloat16).columns == 384


def test_two_swapped_indices_are_wrong() -> None:
    workload = SMALL["topk"]
    values, indices = expected = workload.reference(*_inputs(workload))
    swapped = indices.clone()
    swapped[0, :2] = indices[0, :2].flip(0)
    assert not check_outputs((values, swapped), expected, workload.verification()).passed


def test_attention_checks_its_output_and_not_the_base_of_its_logarithms() -> None:
    workload = SMALL["attention"]
    out, lse = expected = workload.reference(*_inputs(workload))
    declaration = workload.verification()
    assert check_outputs((out, lse / math.log(2)), expected, declaration).passed
    assert not check_outputs((out * 1.05, lse), expected, declaration).passed


@pytest.mark.parametrize(("q_length", "kv_length"), [(5, 5), (3, 7)])
def test_attention_is_what_torch_computes_under_the_same_mask(q_length: int, kv_length: int) -> None:
    workload = AttentionFwdWorkload((2, q_length, 4, 8), (2, kv_length, 2, 8), torch.float32, True)
    q, k, v = workload.gen_inputs()
    mask = torch.ones(q_length, kv_length, dtype=torch.bool).tril(kv_length - q_length)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(t.transpose(1, 2) for t in (q, k, v)), attn_mask=mask, enable_gqa=True
    )
    out, lse = workload.reference(q, k, v)
    torch.testing.assert_close(out, expected.transpose(1, 2), rtol=1e-5, atol=1e-6)
    assert lse.shape == (2, 4, q_length)


def test_attention_that_sees_one_key_too_many_is_wrong() -> None:
    workload = AttentionFwdWorkload((1, 64, 2, 16), (1, 64, 2, 16), torch.bfloat16, True)
    inputs = _inputs(workload)
    expected = workload.reference(*inputs)
    q, k, v = (t.float().transpose(1, 2) for t in inputs)
    mask = torch.ones(64, 64, dtype=torch.bool).tril(1)
    off = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)
    assert not check_outputs((off.bfloat16(), expected[1]), expected, workload.verification()).passed


def test_a_workload_is_built_from_the_numbers_of_its_call(request: pytest.FixtureRequest) -> None:
    manifest = library_at(request.config.rootpath).manifest
    calls: dict[str, WorkloadCall] = {call.id: call for call in manifest.calls()}
    shared = MoeCombineWorkload.from_call(calls["MoeCombineOp-deepseek-v3-128-bfloat16"])
    assert shared == MoeCombineWorkload(128, 8, 7168, torch.bfloat16, 2.5, True)
    assert not MoeCombineWorkload.from_call(calls["MoeCombineOp-mixtral-8x7b-512-float32"]).has_shared
    assert (
        AttentionFwdWorkload.from_call(calls["AttentionFwdOp-clip-vit-l-14-336-float32"]).mask(
            torch.device("cpu")
        )
        is None
    )
