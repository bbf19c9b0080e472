import pytest
import torch.nn.functional as F

from benchmarks import api as bench
from tileops.ops import RMSNormFwdOp


@pytest.mark.parametrize("case", bench.cases(RMSNormFwdOp), ids=lambda case: case.id)
def test_rms_norm_bench(
    case, torch_compile, liger_rms_norm, vllm_rms_norm, sglang_rms_norm, flashinfer_rms_norm
):
    op = RMSNormFwdOp(**case.arguments)

    bench.Runner(op, case).compare(
        {
            "torch": lambda x, weight: F.rms_norm(x, weight.shape, weight, case.workload.eps),
            "torch.compile": torch_compile,
            "liger": liger_rms_norm,
            "vllm": vllm_rms_norm,
            "sglang": sglang_rms_norm,
            "flashinfer": flashinfer_rms_norm,
        }
    )
