"""PyTorch's own samples of operators, compiled and held against eager: a few of what the script goes through."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

import pytest
import torch

pytest.importorskip("torch_mlir")
pytest.importorskip("expecttest", reason="PyTorch's samples need expecttest, which is in kernelmark[dev]")

from scripts import compiler_opinfo as subject
from scripts.compiler_opinfo import Asked, Finding

OPERATORS = (
    "argmax", "clamp", "floor_divide", "gather", "index_put", "max.binary", "nn.functional.embedding",
    "nn.functional.hardtanh", "ones_like", "scatter", "softmax", "sort", "split", "var_mean",
)  # fmt: skip
ASKED = Asked(("f32", "i64"), 2, backward=False, special=False, seconds=100)


@pytest.mark.spec("L4")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # PyTorch's, of its own samples
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_right_or_refused_by_name(name: str) -> None:
    (op,) = subject.operators([name])
    for dtype in ASKED.dtypes:
        if subject.DTYPES[dtype] not in op.supported_dtypes("cpu"):
            continue
        for sample in subject.samples_of(op, subject.DTYPES[dtype], ASKED.samples, backward=False):
            what, text = subject.checked(op, sample, special=dtype == "f32", backward=False)
            assert what in subject.RIGHT, f"{name} {dtype}: {what}: {text}"


@dataclass
class _Sample:
    input: torch.Tensor
    args: tuple[Any, ...] = ()

    @property
    def kwargs(self) -> dict[str, Any]:
        return {}


class _Deadly:
    """An operator of three samples: the first is right, the second ends the process, the third never ends."""

    name, variant_test_name, supports_autograd = "deadly", "", False

    def supported_dtypes(self, device: str) -> list[torch.dtype]:
        return [torch.float32]

    def sample_inputs(self, device: str, dtype: torch.dtype, *, requires_grad: bool) -> list[_Sample]:
        return [_Sample(torch.ones(size)) for size in (1, 2, 3)]

    def op(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        while len(x) == 3:
            time.sleep(1)
        return x + 1


def test_an_operator_that_dies_or_hangs_is_a_line_and_the_next_sample_runs() -> None:
    asked = Asked(("f32",), 3, backward=False, special=False, seconds=10)
    found = [(each.sample, each.what) for each in subject.findings_of(_Deadly(), asked, set())]
    assert found == [(0, "ok"), (1, "CRASH"), (2, "HANG")]


def test_the_table_counts_and_lists_what_is_a_finding() -> None:
    text = subject.table(
        [
            Finding("add", "f32", 0, "plain", "ok"),
            Finding("add", "i64", 0, "plain", "WRONG", "1 and not 2 | 3"),
        ]
    )
    assert "| ok | 1 | 0 | 1 |" in text
    assert "| add | i64 | 0 | WRONG | 1 and not 2 / 3 |" in text


def test_an_answer_that_is_as_near_as_eagers_is_right_and_another_is_not() -> None:
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    eager = exact.float()
    assert subject.difference(eager + 1e-6, eager, exact) == ""
    assert "differs at [1]" in subject.difference(torch.tensor([1.0, 2.1]), eager, exact)
    assert "differs" in subject.difference(torch.tensor([1.0, float("nan")]), eager, exact)
