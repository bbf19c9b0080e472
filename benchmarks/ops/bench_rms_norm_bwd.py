import pytest

from benchmarks import api as bench
from tileops.ops import RMSNormBwdOp


@pytest.mark.parametrize("case", bench.cases(RMSNormBwdOp), ids=lambda case: case.id)
def test_rms_norm_bwd_bench(case, torch_compile, liger_rms_norm_bwd):
    op = RMSNormBwdOp(**case.arguments)

    bench.Runner(op, case).compare(
        {"torch": case.reference, "torch.compile": torch_compile, "liger": liger_rms_norm_bwd}
    )
