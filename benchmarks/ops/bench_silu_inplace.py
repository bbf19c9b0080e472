import pytest

from benchmarks import api as bench
from tileops.ops import SiluInplaceOp


@pytest.mark.parametrize("case", bench.cases(SiluInplaceOp), ids=lambda case: case.id)
def test_silu_inplace_bench(case, torch_compile, torch_silu_inplace):
    op = SiluInplaceOp(**case.arguments)

    bench.Runner(op, case).compare(
        {"torch": case.reference, "torch.compile": torch_compile, "torch-inplace": torch_silu_inplace}
    )
