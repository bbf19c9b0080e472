"""What a reduction down the columns and one along the rows both read is computed for each of them."""

from __future__ import annotations

import pytest
import torch

from torchsched.bindings import available
from torchsched.building import BuildOptions, Built, build
from torchsched.ingress import import_model
from torchsched.targets import detect
from torchsched.transforms.prepare import simplify

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)
ROWS, COLUMNS = 48, 80


class Norm(torch.nn.Module):
    """The gradients of a norm: for its input, along the rows, and for its weight, down the columns."""

    def forward(
        self, dy: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        gradient, normed = dy.float(), x.float() * rstd[:, None]
        projection = (gradient * normed).mean(-1, keepdim=True)
        return (gradient - normed * projection).to(x.dtype), (gradient * normed).sum(0)


class Softmax(torch.nn.Module):
    """One direction only: all readers keep the rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.float().softmax(-1)


class Heavy(torch.nn.Module):
    """What both read takes a function to compute."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.exp()
        return y.sum(0), y / y.sum(1, keepdim=True)


class Downwards(torch.nn.Module):
    """A reader that only adds up the columns, and one that hands on what it read."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2 + 1
        return y.sum(0), y


def _inputs(dtype: torch.dtype) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    matrices = [torch.randn(ROWS, COLUMNS, generator=draw).to(dtype) for _ in range(2)]
    return [*matrices, torch.rand(ROWS, generator=draw)]


def _built(model: torch.nn.Module, inputs: list[torch.Tensor]) -> Built:
    return build(model.eval(), inputs, BuildOptions(target=detect(threads=1), values={"grain": 1}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_nothing_is_kept_between_the_two_gradients_of_a_norm(dtype: torch.dtype) -> None:
    inputs, model = _inputs(dtype), Norm()
    built = _built(model, inputs)
    assert not [each for each in built.compiled.workspaces if each.shape == (ROWS, COLUMNS)]
    bound = built.compiled.bind(built.imported.arguments(inputs))
    bound()
    expected = model(*(each.double() for each in inputs))
    for found, wanted in zip(bound.results, expected, strict=True):
        close = 1e-2 if found.dtype == torch.bfloat16 else 1e-5
        torch.testing.assert_close(found.double(), wanted, rtol=close, atol=close)


@pytest.mark.parametrize("model", [Softmax(), Heavy(), Downwards()], ids=lambda each: type(each).__name__)
def test_what_shares_its_rows_or_is_dear_or_is_handed_on_is_computed_once(model: torch.nn.Module) -> None:
    imported = import_model(model.eval(), [torch.randn(ROWS, COLUMNS)])
    simplify(imported.module, target=detect(threads=1))
    text = str(imported.module)
    assert text.count("math.exp") <= 1
    assert text.count("arith.mulf") <= 1
