"""Reading at computed places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("torch_mlir")

PLACES = [[1], [0]]


@pytest.mark.spec("L4")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, :1].gather(0, torch.tensor(PLACES)),
        lambda x: torch.zeros(2, 8).scatter(1, torch.tensor(PLACES), x[:, 2:3]),
    ],
    ids=["gather", "scatter"],
)
def test_what_lies_in_steps_is_picked_element_by_element(
    compiled: Callable[..., Any], function: Callable[..., Any]
) -> None:
    x = torch.arange(16.0).reshape(2, 8)
    torch.testing.assert_close(compiled(function, x), function(x))
