"""Products, softmax and RMSNorm on a GPU: every manifest call, and sizes that no block divides."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tileops.ops
from kernelmark.harness import library_at
from kernelmark.verify import check_outputs
from tileops.ops import BmmFwdOp, GemmFwdOp, RMSNormFwdOp, SoftmaxFwdOp
from workloads.gemm import BmmWorkload, GemmWorkload
from workloads.norm import RMSNormWorkload
from workloads.softmax import SoftmaxWorkload

pytestmark = pytest.mark.gpu

OPS = ("GemmFwdOp", "BmmFwdOp", "SoftmaxFwdOp", "RMSNormFwdOp")
DTYPES = ("float32", "float16", "bfloat16")


def _check(op: Any, workload: Any) -> None:
    with torch.device("cuda"):
        torch.manual_seed(20)
        inputs = workload.gen_inputs()
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
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        # One for each tile that the launcher may choose, and the smallest there is.
        (1, 1, 1),
        (130, 4097, 300),
        (700, 3000, 200),
        (3000, 4000, 70),
        (513, 64, 1000),
        (16, 4096, 512),
        (1024, 1024, 1024),
    ],
)
def test_the_product_takes_any_sizes(m: int, n: int, k: int, dtype: str) -> None:
    _check(GemmFwdOp(m=m, n=n, k=k, dtype=dtype), GemmWorkload(m, n, k, getattr(torch, dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "m", "n", "k"), [(1, 5, 7, 3), (48, 197, 64, 197), (33, 130, 90, 65)])
def test_the_batched_product_takes_any_sizes(batch: int, m: int, n: int, k: int, dtype: str) -> None:
    _check(
        BmmFwdOp(batch=batch, m=m, n=n, k=k, dtype=dtype),
        BmmWorkload(m, n, k, getattr(torch, dtype), (batch,)),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_product_takes_any_strides(dtype: str) -> None:
    a = torch.randn(70, 2, 90, device="cuda").to(getattr(torch, dtype)).permute(1, 2, 0)
    b = torch.randn(2, 50, 70, device="cuda").to(a.dtype).mT
    got = BmmFwdOp(batch=2, m=90, n=50, k=70, dtype=dtype)(a, b)
    workload = BmmWorkload(90, 50, 70, a.dtype, (2,))
    assert check_outputs(got, workload.reference(a, b), workload.verification()).passed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (9, 131), (3, 16384), (5, 16385), (2, 128256)])
def test_rows_may_have_any_length(rows: int, columns: int, dtype: str) -> None:
    of = getattr(torch, dtype)
    _check(SoftmaxFwdOp(rows=rows, columns=columns, dtype=dtype), SoftmaxWorkload(rows, columns, of))
    _check(
        RMSNormFwdOp(rows=rows, columns=columns, dtype=dtype, eps=1e-5),
        RMSNormWorkload(rows, columns, of, 1e-5),
    )


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_a_kernel_runs_on_the_device_of_its_inputs() -> None:
    x = torch.randn(4, 100, device="cuda:1")
    got = SoftmaxFwdOp(rows=4, columns=100, dtype="float32")(x)
    torch.cuda.synchronize("cuda:1")
    torch.testing.assert_close(got, torch.softmax(x, -1))
    assert torch.cuda.current_device() == 0
