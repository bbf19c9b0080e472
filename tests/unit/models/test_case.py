"""Operations and bytes of a call are counted, and a stated count that disagrees is told; a model gives what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmark.errors import UsageError
from kernelmark.models import ModelRequest
from kernelmark.models import case as cases
from kernelmark.models.case import Subject, require_outputs
from kernelmark.models.state import State
from kernelmark.roofline import Work
from torchsched.elements import Element
from torchsched.ingress import parse_input_shapes
from torchsched.signature import TensorType


class Product(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def count_work(
    model: torch.nn.Module, inputs: tuple[Any, ...], element: Element, **stated: Any
) -> tuple[Work, str]:
    request = ModelRequest(Path("model.py"), element=element, **stated)
    return cases.count_work(Subject(request, model, State(model, inputs)))


INPUTS = (torch.ones(4, 8), torch.ones(8, 2))


def test_products_and_their_bytes_are_counted() -> None:
    work, note = count_work(Product(), INPUTS, Element.F32)
    assert work.flops == 2 * 4 * 8 * 2
    assert work.bytes == 4 * (4 * 8 + 8 * 2 + 4 * 2)
    assert note == ""
    assert work.compute == "float32"


def test_parameters_are_moved_and_shared_tensors_once() -> None:
    linear = torch.nn.Linear(8, 4, bias=False)
    x = torch.ones(2, 8)
    work, _ = count_work(linear, (x,), Element.F32)
    assert work.bytes == 4 * (8 * 4 + 2 * 8 + 2 * 4)
    assert count_work(Product(), (torch.eye(4),) * 2, Element.F32)[0].bytes == 4 * 2 * 16


def test_what_is_stated_counts_and_a_disagreement_is_told() -> None:
    work, note = count_work(Product(), INPUTS, Element.F32, gflops=256e-9, bytes=1000)
    assert (work.flops, work.bytes) == (256, 1000)
    assert "2 times as many" in note
    assert count_work(Product(), INPUTS, Element.F32, gflops=128e-9)[1] == ""


def test_where_nothing_is_counted_nothing_is_said() -> None:
    work, _ = count_work(torch.nn.ReLU(), (torch.ones(4),), Element.BF16, gflops=None)
    assert work.flops == 0
    assert work.compute == "bfloat16"
    assert count_work(torch.nn.ReLU(), (torch.ones(4),), Element.F32, gflops=1e-9)[1] == ""


def test_the_products_of_a_recurrent_layer_are_counted() -> None:
    steps, rows, features, width = 5, 3, 8, 4
    model = torch.nn.LSTM(features, width).eval()
    work, _ = count_work(model, (torch.ones(steps, rows, features),), Element.F32)
    assert work.flops == 2 * steps * rows * 4 * width * (features + width)


class Running(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = torch.ones(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden = self.hidden * 0.5 + x
        return self.hidden + x.mul_(2)


def test_counting_leaves_the_model_and_its_inputs_as_they_were() -> None:
    model, x = Running(), torch.ones(3)
    kept = model.hidden
    assert count_work(model, (x,), Element.F32)[0].flops == 0
    assert model.hidden is kept
    assert torch.equal(x, torch.ones(3))


@pytest.mark.spec("L9")
def test_each_output_is_what_is_said_of_it() -> None:
    found = (TensorType((2, 3), Element.F32), TensorType((2,), Element.I64))
    require_outputs(_specs("2x3,2xi64"), found)
    require_outputs(_specs("2x3xf32x0,2xi64"), found)
    for text in ("2x3", "2x3,2xi32", "2x4,2xi64", "2x3xf16,2xi64"):
        with pytest.raises(UsageError, match="and the model gives 2x3xf32, 2xi64"):
            require_outputs(_specs(text), found)
    with pytest.raises(UsageError, match="--output-shape says 4, and the model gives nothing"):
        require_outputs(_specs("4"), ())


def _specs(text: str) -> Any:
    return parse_input_shapes(text)
