"""Long sums in plain loops are taken in parts, so that rounding does not grow with their length."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torchsched.bindings import available
from torchsched.building import BuildOptions, build
from torchsched.ingress import import_model
from torchsched.targets import detect
from torchsched.transforms.splitting import cut_long_sums

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)


class Calls(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def found_by_loops(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    built = build(Calls(function).eval(), [x], BuildOptions(("loops",), target=detect(threads=1)))
    bound = built.compiled.bind(built.imported.arguments([x]))
    bound()
    return bound.results[0]


@pytest.mark.parametrize("shape", [(14, 64, 64, 64), (1 << 21,), (3, 1 << 20)], ids=str)
def test_a_sum_of_millions_is_as_good_as_one_in_parts(shape: tuple[int, ...]) -> None:
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    found = found_by_loops(lambda x: x.square().sum(), x)
    expected = x.double().square().sum()
    # one by one, the first of these is off by 1.5e-4
    assert abs(float(found) / float(expected) - 1) < 1e-5


def cut(function: Callable[[torch.Tensor], torch.Tensor], *shape: int, longest: int) -> str:
    imported = import_model(Calls(function).eval(), [torch.ones(shape)])
    cut_long_sums(imported.module, target=detect(threads=1), longest=longest)
    imported.module.operation.verify()
    return str(imported.module)


@pytest.mark.parametrize(
    ("shape", "longest", "parts"),
    [
        ((6, 8), 8, ["tensor<6xf32>"]),
        ((6, 8), 24, ["tensor<2xf32>"]),
        ((4, 4, 4), 4, ["tensor<4xf32>", "tensor<4x4xf32>"]),
        ((64,), 8, ["tensor<8xf32>"]),
        ((64,), 100, []),
        ((67,), 8, []),
    ],
    ids=str,
)
def test_a_sum_is_cut_into_the_fewest_parts_that_do(
    shape: tuple[int, ...], longest: int, parts: list[str]
) -> None:
    text = cut(torch.sum, *shape, longest=longest)
    for part in parts:
        assert f"-> {part}" in text
    assert text.count("linalg.generic") == 1 + len(parts)


def test_what_does_not_round_is_left_alone() -> None:
    assert cut(torch.amax, 64, longest=8).count("linalg.generic") == 1


def test_sums_that_are_kept_apart_stay_apart() -> None:
    x = torch.rand(3, 5, 1 << 17, generator=torch.Generator().manual_seed(0))
    found = found_by_loops(lambda x: x.sum((0, 2)), x)
    torch.testing.assert_close(found.double(), x.double().sum((0, 2)), rtol=1e-5, atol=0)
