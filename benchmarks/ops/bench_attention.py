import pytest

from benchmarks import api as bench
from tileops.ops import AttentionFwdOp


@pytest.mark.parametrize("case", bench.cases(AttentionFwdOp), ids=lambda case: case.id)
def test_attention_bench(
    case, torch_compile, torch_sdpa, flashinfer_attention, vllm_attention, sglang_attention
):
    op = AttentionFwdOp(**case.arguments)

    bench.Runner(op, case).compare(
        {
            "torch": case.reference,
            "torch.compile": torch_compile,
            "torch-sdpa": torch_sdpa,
            "flashinfer": flashinfer_attention,
            "vllm": vllm_attention,
            "sglang": sglang_attention,
        }
    )
