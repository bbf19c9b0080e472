"""Arithmetic of whole numbers and booleans, of which torch-mlir gets 8 bits wrong, or crashes on, by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from torchsched.ingress import import_model

VALUES = {
    torch.uint8: ([200, 3, 7, 255, 0, 128], [3, 200, 7, 1, 2, 255]),
    torch.int8: ([-128, 3, 7, 127, -1, 100], [3, -5, 7, 1, 2, 127]),
    torch.int16: ([-300, 3, 7, 327, -1, 100], [3, -5, 7, 1, 2, 1270]),
    torch.int32: ([-70_000, 3, 7, 327, -1, 100], [3, -5, 7, 1, 2, 1270]),
    torch.int64: ([-(1 << 40), 3, 7, 327, -1, 100], [3, -5, 7, 1, 2, 1270]),
}


class Arithmetic(nn.Module):
    """Many operations in one module: each import takes some tenths of a second."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> list[Any]:
        return [
            a + b, a + 3, a - b, a * b, a * 3, a / b, a / 3, a // b, a // 3, a % b, a % 3, a**2, -a,
            a + 1.5, a.float(), a.long(), a.to(torch.int8), a.to(torch.uint8), a.bool(),
        ]  # fmt: skip


class Logic(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> list[Any]:
        return [
            a > b, a == b, a != 0, ~a, a & b, a | b, a ^ b, a >> 1, torch.logical_not(a),
            a.any(), a.all(), a.reshape(2, 3).any(dim=0), torch.where(a > b, a, b), a.masked_fill(a > b, 1),
        ]  # fmt: skip


class Reductions(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> list[Any]:
        return [
            a.sum(), a.sum(0), a.max(), a.min(), a.max(dim=0), a.argmax(), torch.minimum(a, b), a.clamp(2, 9),
            a.cumsum(0), a.sort(), a.abs(), a.sign(),
        ]  # fmt: skip


class Moves(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> list[Any]:
        return [
            torch.cat([a, b]), a.flip(0), a[[2, 0]], a.roll(1), a.roll(-2), a.reshape(2, 3).roll((1, 1), (0, 1)),
            a.reshape(2, 3).t(), torch.ones_like(a) + a, a.repeat(2), torch.stack([a, b]), a.reshape(2, 3).triu(),
            nn.functional.pad(a, (1, 2), value=3), a[:0].roll(1), torch.full_like(a, 5), torch.zeros_like(a),
            a[:, None].expand(6, 2).contiguous(), torch.arange(5).to(a.dtype), (a.float() / 2).to(a.dtype),
        ]  # fmt: skip


@pytest.mark.spec("L3")
@pytest.mark.parametrize("dtype", VALUES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("model", [Arithmetic, Logic, Reductions, Moves])
def test_whole_numbers_come_out_as_pytorch_has_them(
    run, model: Callable[[], nn.Module], dtype: torch.dtype
) -> None:
    inputs = tuple(torch.tensor(each, dtype=dtype) for each in VALUES[dtype])
    imported = import_model(model(), inputs)
    got, expected = run(imported, inputs).output, model()(*inputs)
    for place, (mine, wanted) in enumerate(zip(got, expected, strict=True)):
        torch.testing.assert_close(mine, wanted, msg=lambda text, place=place: f"result {place}: {text}")


class OfBooleans(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> list[Any]:
        return [
            a & b, a | b, a ^ b, ~a, a == b, a.any(), a.all(), a.sum(), a.float(), torch.where(a, b, ~b), a * b,
            a + b, a.long() + 1, torch.cat([a, b]), a.cumsum(0), a.flip(0), a.roll(2),
        ]  # fmt: skip


@pytest.mark.spec("L3")
def test_booleans_come_out_as_pytorch_has_them(run) -> None:
    inputs = (torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False]))
    torch.testing.assert_close(run(import_model(OfBooleans(), inputs), inputs).output, OfBooleans()(*inputs))


def test_rolling_floats_needs_no_whole_numbers(run) -> None:
    class Rolls(nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [x.roll(3, 0), x.roll(0, 1), x.roll((1, -1), (1, 0)), x.roll(5)]

    inputs = (torch.arange(12.0).reshape(3, 4),)
    torch.testing.assert_close(run(import_model(Rolls(), inputs), inputs).output, Rolls()(*inputs))
