"""Products, softmax and RMSNorm on the CPU: compiled, as a composition, and what they say of their work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tileops.ops
from kernelmark import probe
from kernelmark.harness import library_at
from tileops.ops import BmmFwdOp, GemmFwdOp, RMSNormFwdOp, SoftmaxFwdOp, base
from tileops.ops.base import Op

Sample = Callable[[torch.dtype], tuple[Op, tuple[torch.Tensor, ...], torch.Tensor]]

# The largest error that passes, in multiples of the output's largest magnitude.
ROUNDING = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}


def _gemm(dtype: torch.dtype) -> tuple[Op, tuple[torch.Tensor, ...], torch.Tensor]:
    a, b = torch.randn(13, 37, dtype=dtype), torch.randn(37, 21, dtype=dtype)
    return GemmFwdOp(m=13, n=21, k=37, dtype=_name(dtype)), (a, b), a.double() @ b.double()


def _bmm(dtype: torch.dtype) -> tuple[Op, tuple[torch.Tensor, ...], torch.Tensor]:
    a, b = torch.randn(3, 13, 37, dtype=dtype), torch.randn(3, 37, 21, dtype=dtype)
    op = BmmFwdOp(batch=3, m=13, n=21, k=37, dtype=_name(dtype))
    return op, (a, b), torch.bmm(a.double(), b.double())


def _softmax(dtype: torch.dtype) -> tuple[Op, tuple[torch.Tensor, ...], torch.Tensor]:
    # Without the maximum taken off, the exponentials would be infinite in every dtype.
    x = torch.randn(7, 131).add(1000).to(dtype)
    return SoftmaxFwdOp(rows=7, columns=131, dtype=_name(dtype)), (x,), torch.softmax(x.double(), -1)


def _norm(dtype: torch.dtype) -> tuple[Op, tuple[torch.Tensor, ...], torch.Tensor]:
    # Small rows, so that eps matters: it is as large as the mean of squares.
    x, weight = (torch.randn(7, 131) / 4).to(dtype), torch.randn(131, dtype=dtype)
    op = RMSNormFwdOp(rows=7, columns=131, dtype=_name(dtype), eps=1 / 16)
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1 / 16).sqrt() * weight.double()
    return op, (x, weight), expected


SAMPLES: dict[str, Sample] = {"gemm": _gemm, "bmm": _bmm, "softmax": _softmax, "norm": _norm}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _worst(got: torch.Tensor, expected: torch.Tensor) -> float:
    assert got.shape == expected.shape
    return ((got.double() - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.skipif(base.cxx_compiler() is None, reason="inductor needs a C++ compiler; there is none here")
@pytest.mark.parametrize("name", SAMPLES)
def test_the_path_through_inductor_agrees_with_float64(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(base.CPU_VARIABLE, "inductor")
    op, inputs, expected = SAMPLES[name](torch.float32)
    got = op(*inputs)
    assert got.dtype == torch.float32
    assert _worst(got, expected) <= ROUNDING["float32"]
    products = name in ("gemm", "bmm")
    assert op.backend == ("torch inductor (library calls)" if products else "torch inductor")


@pytest.mark.skipif(not probe.module("torch_mlir"), reason=probe.module("torch_mlir").detail)
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("name", SAMPLES)
def test_the_path_through_mlir_agrees_with_float64(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(base.CPU_VARIABLE, "mlir")
    op, inputs, expected = SAMPLES[name](getattr(torch, dtype))
    got = op(*inputs)
    assert op.backend.startswith(f"mlir {op.pipeline} (")
    assert got.dtype == getattr(torch, dtype)
    assert _worst(got, expected) <= ROUNDING[dtype]


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("name", SAMPLES)
def test_the_composition_alone_agrees_with_float64(
    name: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(base.CPU_VARIABLE, "torch")
    op, inputs, expected = SAMPLES[name](getattr(torch, dtype))
    got = op(*inputs)
    assert got.dtype == getattr(torch, dtype)
    assert _worst(got, expected) <= ROUNDING[dtype]
    assert op.backend == "torch composition"


@pytest.mark.parametrize("name", SAMPLES)
def test_a_tensor_off_the_cpu_goes_to_the_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, inputs, _ = SAMPLES[name](torch.float32)
    monkeypatch.setattr(op, "launch", lambda *given: given)
    elsewhere = tuple(x.to("meta") for x in inputs)
    assert op(*elsewhere) == elsewhere
    assert op.backend == "triton"


@pytest.mark.spec("T37")
@pytest.mark.parametrize("name", ["GemmFwdOp", "BmmFwdOp", "SoftmaxFwdOp", "RMSNormFwdOp"])
def test_an_op_counts_the_work_of_each_call_as_the_manifest_does(
    name: str, request: pytest.FixtureRequest
) -> None:
    calls = library_at(request.config.rootpath).manifest.op(name).calls()
    assert calls
    for call in calls:
        work = getattr(tileops.ops, name)(**call.arguments).eval_roofline()
        assert (work.flops, work.bytes, work.compute) == tuple(call.roofline())


@pytest.mark.spec("T37")
@pytest.mark.parametrize(
    ("op", "work"),
    [
        # 2·2·3·4 operations; 8 + 12 + 6 elements of two bytes.
        (GemmFwdOp(m=2, n=3, k=4, dtype="bfloat16"), (48, 52, "bfloat16")),
        (BmmFwdOp(batch=5, m=2, n=3, k=4, dtype="float32"), (240, 520, "float32")),
        # Read and written once; computed in float32 whatever the dtype.
        (SoftmaxFwdOp(rows=3, columns=10, dtype="float16"), (150, 120, "float32")),
        (RMSNormFwdOp(rows=3, columns=10, dtype="float16"), (120, 140, "float32")),
    ],
)
def test_the_work_of_a_small_call_is_what_one_counts_by_hand(op: Op, work: tuple[int, int, str]) -> None:
    found = op.eval_roofline()
    assert (found.flops, found.bytes, found.compute) == work
