import pytest
from toy_ops import AddOp, ScaleOp

import kernelmark as bench


@pytest.mark.parametrize("case", bench.cases(ScaleOp), ids=lambda case: case.id)
def test_scale(case):
    bench.Runner(ScaleOp(**case.arguments), case).compare({"torch": case.reference})


@pytest.mark.parametrize("case", bench.cases(AddOp), ids=lambda case: case.id)
def test_add(case):
    bench.Runner(AddOp(), case).compare(case.reference)
