import pytest

from benchmarks import api as bench
from tileops.ops import GemmFwdOp


@pytest.mark.parametrize("case", bench.cases(GemmFwdOp), ids=lambda case: case.id)
def test_gemm_bench(case, torch_compile, vllm_gemm, sglang_gemm):
    op = GemmFwdOp(**case.arguments)

    bench.Runner(op, case).compare(
        {
            "torch": case.reference,
            "torch.compile": torch_compile,
            "vllm": vllm_gemm,
            "sglang": sglang_gemm,
        }
    )
