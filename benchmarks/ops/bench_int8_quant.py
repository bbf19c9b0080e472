import pytest

from benchmarks import api as bench
from tileops.ops import Int8QuantOp


@pytest.mark.parametrize("case", bench.cases(Int8QuantOp), ids=lambda case: case.id)
def test_int8_quant_bench(case, torch_compile, vllm_int8_quant, sglang_int8_quant):
    op = Int8QuantOp(**case.arguments)

    bench.Runner(op, case).compare(
        {
            "torch": case.reference,
            "torch.compile": torch_compile,
            "vllm": vllm_int8_quant,
            "sglang": sglang_int8_quant,
        }
    )
