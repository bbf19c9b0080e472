import pytest

from benchmarks import api as bench
from tileops.ops import MoeCombineOp


@pytest.mark.parametrize("case", bench.cases(MoeCombineOp), ids=lambda case: case.id)
def test_moe_combine_bench(case, torch_compile, vllm_moe_combine):
    op = MoeCombineOp(**case.arguments)

    bench.Runner(op, case).compare(
        {"torch": case.reference, "torch.compile": torch_compile, "vllm": vllm_moe_combine}
    )
