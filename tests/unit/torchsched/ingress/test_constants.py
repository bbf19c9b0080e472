"""What a graph makes of numbers alone: as PyTorch computes it, whatever torch-mlir's folders say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("torch_mlir")

X = torch.arange(1.0, 5.0)


def _comparisons(x: torch.Tensor) -> list[torch.Tensor]:
    found = []
    for full in (torch.ones(4), torch.zeros(4, dtype=torch.long), torch.ones(4, dtype=torch.bool)):
        for number in (1, 0.5, 0, True):
            found += [x * each for each in (full == number, full > number, full <= number, full != number)]
    return found


def _others(x: torch.Tensor) -> list[torch.Tensor]:
    return [
        x.masked_fill(torch.ones_like(x) == 1, -9.0),
        torch.ones(4).sign() * x,
        (torch.full((4,), -2) // 2) * x,
        (torch.full_like(x, -2.5)).to(torch.long) * x,
        x / torch.tensor([1.0, -0.0, 0.0, 2.0]),
        torch.where(torch.zeros(4).new_full((4,), float("nan")) == 1, x, -x),
    ]


@pytest.mark.spec("L4")
@pytest.mark.parametrize("function", [_comparisons, _others])
def test_constants_are_compared_and_computed_as_pytorch_does(
    compiled: Callable[..., Any], function: Callable[..., Any]
) -> None:
    torch.testing.assert_close(compiled(function, X), function(X))
