"""Operations and bytes of a call are counted, and a stated count that disagrees is told."""

from __future__ import annotations

import torch

from kernelmark.models.work import count_work
from torchsched.elements import Element


class Product(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


INPUTS = (torch.ones(4, 8), torch.ones(8, 2))


def test_products_and_their_bytes_are_counted() -> None:
    work = count_work(Product(), INPUTS, Element.F32)
    assert work.flops == 2 * 4 * 8 * 2
    assert work.bytes == 4 * (4 * 8 + 8 * 2 + 4 * 2)
    assert work.gflops == work.flops / 1e9
    assert work.note == ""
    assert work.eval_roofline().compute == "float32"


def test_parameters_are_moved_and_shared_tensors_once() -> None:
    linear = torch.nn.Linear(8, 4, bias=False)
    x = torch.ones(2, 8)
    work = count_work(linear, (x,), Element.F32)
    assert work.bytes == 4 * (8 * 4 + 2 * 8 + 2 * 4)
    assert count_work(Product(), (torch.eye(4),) * 2, Element.F32).bytes == 4 * 2 * 16


def test_what_is_stated_counts_and_a_disagreement_is_told() -> None:
    work = count_work(Product(), INPUTS, Element.F32, gflops=256e-9, nbytes=1000)
    assert (work.flops, work.bytes) == (256, 1000)
    assert "2 times as many" in work.note
    assert count_work(Product(), INPUTS, Element.F32, gflops=128e-9).note == ""


def test_where_nothing_is_counted_nothing_is_said() -> None:
    work = count_work(torch.nn.ReLU(), (torch.ones(4),), Element.BF16, gflops=None)
    assert work.gflops is None
    assert work.flops == 0
    assert work.eval_roofline().compute == "bfloat16"
    assert count_work(torch.nn.ReLU(), (torch.ones(4),), Element.F32, gflops=1e-9).note == ""


def test_the_products_of_a_recurrent_layer_are_counted() -> None:
    steps, rows, features, width = 5, 3, 8, 4
    model = torch.nn.LSTM(features, width).eval()
    work = count_work(model, (torch.ones(steps, rows, features),), Element.F32)
    assert work.flops == 2 * steps * rows * 4 * width * (features + width)
