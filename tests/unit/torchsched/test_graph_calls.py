"""What a graph gives: its own tensors where eager's are, one memory where eager has one, the caller's left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("torch_mlir")

from kernelmark.errors import ModelImportError

Compile = Callable[..., Any]


def _and_flat(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x + 1
    return y, y.view(-1)


def _halves(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = (x + 1).t()
    return (*y.split(2), y.reshape(-1))


def _last_first(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.to(memory_format=torch.channels_last) * 2
    return y, y.permute(0, 2, 3, 1).view(-1)


@pytest.mark.spec("L4")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("function", "shape"), [(_and_flat, (3, 4)), (_halves, (4, 4)), (_last_first, (2, 3, 4, 5))]
)
def test_results_share_memory_where_eagers_do(
    compiled: Compile, function: Callable[..., Any], shape: tuple[int, ...], dynamic: bool
) -> None:
    x = torch.randn(shape)
    got, expected = compiled(function, x, dynamic=dynamic), function(x)
    torch.testing.assert_close(got, expected)
    assert [each.stride() for each in got[:2]] == [each.stride() for each in expected[:2]]
    for each in (got, expected):
        each[0].zero_()
    torch.testing.assert_close(got, expected)


@pytest.mark.spec("L4")
def test_two_parts_of_one_operation_are_no_views_of_each_other(compiled: Compile) -> None:
    x = torch.randn(1, 2, 4, 4)
    values, places = compiled(lambda x: nn.functional.max_pool2d(x, 2, return_indices=True), x)
    torch.testing.assert_close((values, places), nn.functional.max_pool2d(x, 2, return_indices=True))


@pytest.mark.spec("L4")
def test_reading_by_strides_what_lies_otherwise_is_refused_by_name(compiled: Compile) -> None:
    x = torch.arange(100.0).reshape(2, 5, 2, 5).to(memory_format=torch.channels_last)

    def strided(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided(torch.roll(x, -1, 0), (5, 10), (4, 1), 0)

    with pytest.raises(Exception, match=r"aten\.as_strided") as raised:
        compiled(strided, x)
    assert isinstance(raised.value.inner_exception, ModelImportError)  # type: ignore[attr-defined]


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = self.w.clone()
        w[0:1] = 0
        return x @ w


def _edited(x: torch.Tensor) -> torch.Tensor:
    z = x.clone()
    z[1:3] = 0
    return z


def _cached(cache: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    out = cache.clone()
    out[:, 2:3] = new
    return out


@pytest.mark.spec("L4")
@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (_edited, (torch.ones(6, 5),)),
        (_cached, (torch.ones(2, 8, 4), torch.zeros(2, 1, 4))),
        (torch.linalg.det, (torch.eye(4) * 4 + 1,)),
    ],
    ids=["edit", "cache", "det"],
)
def test_what_the_caller_hands_in_keeps_its_values(
    compiled: Compile, function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]
) -> None:
    given = [each.clone() for each in inputs]
    torch.testing.assert_close(compiled(function, *given), function(*inputs))
    torch.testing.assert_close(given, list(inputs), rtol=0, atol=0)


@pytest.mark.spec("L4")
def test_a_parameter_whose_clone_is_edited_keeps_its_values(compiled: Compile) -> None:
    net = Masked()
    compiled(net, torch.ones(4, 4)).sum().backward()
    assert bool((net.w == 1).all())
