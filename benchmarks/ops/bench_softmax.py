import pytest

from benchmarks import api as bench
from tileops.ops import SoftmaxFwdOp


@pytest.mark.parametrize("case", bench.cases(SoftmaxFwdOp), ids=lambda case: case.id)
def test_softmax_bench(case, torch_compile, liger_softmax):
    op = SoftmaxFwdOp(**case.arguments)

    bench.Runner(op, case).compare(
        {"torch": case.reference, "torch.compile": torch_compile, "liger": liger_softmax}
    )
