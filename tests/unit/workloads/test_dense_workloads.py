"""The workloads of products, softmax and RMSNorm: inputs as the manifest says, checks that catch mistakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelmark.harness import library_at
from kernelmark.verify import check_outputs, run_controls, vacuous
from workloads.gemm import BmmWorkload, GemmWorkload
from workloads.norm import RMSNormWorkload
from workloads.softmax import SoftmaxWorkload

OPS = ("GemmFwdOp", "BmmFwdOp", "SoftmaxFwdOp", "RMSNormFwdOp")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)

SMALL: dict[str, Callable[[torch.dtype], Any]] = {
    "gemm": lambda dtype: GemmWorkload(48, 40, 96, dtype),
    "bmm": lambda dtype: BmmWorkload(24, 20, 96, dtype, (4,)),
    "softmax": lambda dtype: SoftmaxWorkload(32, 512, dtype),
    "softmax over a vocabulary": lambda dtype: SoftmaxWorkload(2, 128256, dtype),
    "norm": lambda dtype: RMSNormWorkload(64, 48, dtype, 1e-5),
}
every = pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in SMALL for dtype in DTYPES],
    ids=lambda value: value if isinstance(value, str) else str(value).removeprefix("torch."),
)


def _made(name: str, dtype: torch.dtype) -> tuple[Any, tuple[torch.Tensor, ...], torch.Tensor]:
    torch.manual_seed(20)
    workload = SMALL[name](dtype)
    inputs = workload.gen_inputs()
    return workload, inputs, workload.reference(*inputs)


def _precise(name: str, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    wide = tuple(x.double() for x in inputs)
    if name.startswith("softmax"):
        return torch.softmax(*wide, -1)
    if name == "norm":
        return torch.nn.functional.rms_norm(wide[0], wide[1].shape, wide[1], 1e-5)
    return torch.matmul(*wide)


@pytest.mark.spec("T4", "T5")
@pytest.mark.parametrize("op", OPS)
def test_inputs_and_outputs_are_what_the_manifest_says_for_every_call(
    op: str, request: pytest.FixtureRequest
) -> None:
    library = library_at(request.config.rootpath)
    for call in library.manifest.op(op).calls():
        with torch.device("meta"):  # shapes and dtypes need no memory
            workload = library.entries[op].build(call)
            inputs = workload.gen_inputs()
            outputs = (workload.reference(*inputs),)
        for tensors, specs in ((inputs, call.tensors), (outputs, call.outputs)):
            made = [(tuple(x.shape), str(x.dtype).removeprefix("torch.")) for x in tensors]
            assert made == [(spec.shape, spec.dtype) for spec in specs.values()]


@pytest.mark.spec("T19", "T24")
@every
def test_a_check_passes_the_honest_answer_and_no_control(name: str, dtype: torch.dtype) -> None:
    workload, inputs, expected = _made(name, dtype)
    honest = _precise(name, inputs).to(dtype)
    verdict = check_outputs(honest, expected, workload.verification())
    assert verdict.passed, verdict.message
    controls = run_controls(expected, inputs, workload.verification())
    assert controls
    assert not vacuous(controls)


@every
def test_a_reference_is_as_exact_as_its_dtype_and_leaves_its_inputs_alone(
    name: str, dtype: torch.dtype
) -> None:
    workload, inputs, _ = _made(name, dtype)
    before = [x.clone() for x in inputs]
    got = workload.reference(*inputs)
    precise = _precise(name, inputs)
    assert got.dtype == dtype
    error = (got.double() - precise).abs() / precise.abs().max()
    assert error.max().item() <= torch.finfo(dtype).eps * (16 if dtype == torch.float32 else 1)
    assert all(map(torch.equal, inputs, before))


@every
def test_inputs_are_signed_and_fill_their_range(name: str, dtype: torch.dtype) -> None:
    _, inputs, expected = _made(name, dtype)
    scored = inputs[0].float()
    assert 0.3 < (scored < 0).float().mean() < 0.7
    assert expected.isfinite().all()
    assert len(expected.unique()) > 16


@pytest.mark.parametrize("name", ["gemm", "bmm"])
def test_a_float32_product_of_rounded_factors_is_wrong(name: str) -> None:
    workload, inputs, expected = _made(name, torch.float32)
    # What the matrix units' TF32 keeps of a float32: ten bits of the fraction.
    short = tuple((x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in inputs)
    verdict = check_outputs(torch.matmul(*short), expected, workload.verification())
    assert not verdict.passed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["gemm", "bmm"])
def test_a_product_that_left_out_a_block_of_its_terms_is_wrong(name: str, dtype: torch.dtype) -> None:
    workload, (a, b), expected = _made(name, dtype)
    short = torch.matmul(a[..., :-8], b[..., :-8, :])
    assert not check_outputs(short, expected, workload.verification()).passed


@pytest.mark.parametrize("dtype", DTYPES)
def test_probabilities_that_do_not_sum_to_one_are_wrong(dtype: torch.dtype) -> None:
    workload, (x,), expected = _made("softmax over a vocabulary", dtype)
    off = torch.exp(x.double()) / torch.exp(x.double()[:, :-4096]).sum(-1, keepdim=True)
    assert not check_outputs(off.to(dtype), expected, workload.verification()).passed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda x, weight: x / x.square().mean().sqrt() * weight, id="one norm for all rows"),
        pytest.param(lambda x, weight: x / x.square().mean(-1, keepdim=True).sqrt(), id="no weight"),
        pytest.param(lambda x, weight: x / x.abs().mean(-1, keepdim=True) * weight, id="mean magnitude"),
        pytest.param(lambda x, weight: x / x.std(-1, keepdim=True) * (1 + weight), id="one plus the weight"),
    ],
)
def test_other_norms_are_wrong(wrong: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    workload, (x, weight), expected = _made("norm", dtype)
    other = wrong(x.double(), weight.double()).to(dtype)
    assert not check_outputs(other, expected, workload.verification()).passed


def test_a_workload_is_built_from_the_numbers_of_its_call(request: pytest.FixtureRequest) -> None:
    library = library_at(request.config.rootpath)
    built = {
        call.id: library.entries[call.op].build(call) for call in library.manifest.calls() if call.op in OPS
    }
    assert built["GemmFwdOp-llama-3-8b-attn-out-float32"] == GemmWorkload(128, 4096, 4096, torch.float32)
    assert built["BmmFwdOp-vit-b-16-values-bfloat16"] == BmmWorkload(197, 64, 197, torch.bfloat16, (48,))
    assert built["SoftmaxFwdOp-llama-3-8b-logits-bfloat16"] == SoftmaxWorkload(16, 128256, torch.bfloat16)
    assert built["RMSNormFwdOp-llama-3-8b-prefill-bfloat16"] == RMSNormWorkload(
        1024, 4096, torch.bfloat16, 1e-5
    )
