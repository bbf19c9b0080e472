import pytest

from benchmarks import api as bench
from tileops.ops import TopKOp


@pytest.mark.parametrize("case", bench.cases(TopKOp), ids=lambda case: case.id)
def test_topk_bench(case, torch_compile, flashinfer_topk):
    op = TopKOp(**case.arguments)

    bench.Runner(op, case).compare(
        {"torch": case.reference, "torch.compile": torch_compile, "flashinfer": flashinfer_topk}
    )
