"""Functions over vectors are as accurate as a float can be, but for a few units in the last place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from torchsched.bindings import available
from torchsched.building import BuildOptions, build
from torchsched.targets import Target, detect, override
from torchsched.transforms.vectors.functions import library_name

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)

Function = Callable[[torch.Tensor], torch.Tensor]
N = 1 << 14


def spread(low: float, high: float) -> torch.Tensor:
    return torch.linspace(low, high, N, dtype=torch.float64).float()


def logarithmic(low: float, high: float) -> torch.Tensor:
    return torch.logspace(low, high, N, base=10, dtype=torch.float64).float()


SMALL = torch.cat([logarithmic(-30, -1)[: N // 2], -logarithmic(-30, -1)[N // 2 :]])
WRITTEN: dict[str, tuple[Function, torch.Tensor, float]] = {
    # the function, where, and the greatest error in units in the last place of a float
    "exp": (torch.exp, spread(-86, 88.7), 2),
    "exp of small": (torch.exp, SMALL, 1),
    "exp2": (torch.exp2, spread(-100, 120), 60),  # x ln 2 is rounded before
    "expm1": (torch.expm1, spread(-20, 20), 4),
    "expm1 of small": (torch.expm1, SMALL, 3),
    "log": (torch.log, logarithmic(-37, 38), 3),
    "log near 1": (torch.log, spread(0.7, 1.5), 3),
    "log2": (torch.log2, logarithmic(-37, 38), 4),
    "log10": (torch.log10, logarithmic(-37, 38), 4),
    "log1p": (torch.log1p, spread(-0.999, 100), 5),
    "log1p of small": (torch.log1p, SMALL, 5),
    "tanh": (torch.tanh, spread(-12, 12), 8),
    "tanh of small": (torch.tanh, SMALL, 4),
    "erf": (torch.erf, spread(-5, 5), 8),
    "erf of small": (torch.erf, SMALL, 4),
    "sigmoid": (torch.sigmoid, spread(-80, 80), 4),
}
CALLED: dict[str, tuple[Function, torch.Tensor, float]] = {
    "sin": (torch.sin, spread(-30, 30), 4),
    "cos": (torch.cos, spread(-30, 30), 4),
    "tan": (torch.tan, spread(-1.5, 1.5), 5),
    "atan": (torch.atan, spread(-30, 30), 4),
    "sinh": (torch.sinh, spread(-20, 20), 5),
    "asinh": (torch.asinh, spread(-20, 20), 6),
    "acos": (torch.acos, spread(-0.99, 0.99), 4),
    "power": (lambda x: x**2.7, spread(0.01, 30), 4),
}


class Model(torch.nn.Module):
    """Several functions, each of its own input."""

    def __init__(self, functions: Sequence[Function]) -> None:
        super().__init__()
        self.functions = list(functions)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(function(x) for function, x in zip(self.functions, inputs, strict=True))


def computed(
    functions: Sequence[Function], inputs: Sequence[torch.Tensor], target: Target | None = None
) -> tuple[Any, str]:
    """Compile and run; give the results, and the module once its loops were written."""
    texts: list[str] = []

    def observe(step: str, module: Any) -> None:
        if "vectorise:vectorise" in step:
            texts.append(str(module))

    options = BuildOptions(("elementwise",), target=target or detect(threads=1))
    built = build(Model(functions), list(inputs), options, observer=observe)
    bound = built.compiled.bind(built.imported.arguments(list(inputs)))
    bound()
    return built.imported.assemble(bound.results), texts[0]


@pytest.mark.parametrize("table", [WRITTEN, CALLED], ids=["written", "called"])
def test_a_function_is_right_to_a_few_units_in_the_last_place(
    table: dict[str, tuple[Function, torch.Tensor, float]],
) -> None:
    functions, inputs, limits = zip(*table.values(), strict=True)
    found, text = computed(functions, inputs)
    assert "linalg.generic" not in text
    wrong = {}
    for name, function, x, limit, y in zip(table, functions, inputs, limits, found, strict=True):
        wanted = function(x.double())
        one = torch.finfo(torch.float32).eps * wanted.abs().clamp(min=1e-37)
        error = ((y.double() - wanted).abs() / one).max().item()
        if error > limit:
            wrong[name] = error
    assert not wrong


def test_functions_keep_infinities_zeros_and_what_is_no_number() -> None:
    x = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), -1.0, 1e-42, 200.0, -200.0] * 2)
    functions = [torch.exp, torch.log, torch.log1p, torch.expm1, torch.tanh, torch.erf, torch.sigmoid]
    found, _ = computed(functions, [x] * len(functions))
    for function, y in zip(functions, found, strict=True):
        torch.testing.assert_close(y, function(x), rtol=1e-5, atol=1e-37, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_single_precision(dtype: torch.dtype) -> None:
    x = spread(-4, 4).to(dtype)
    (y, z), text = computed([torch.tanh, torch.exp], [x, x])
    assert y.dtype == z.dtype == dtype
    torch.testing.assert_close(y, torch.tanh(x.float()).to(dtype))
    torch.testing.assert_close(z, torch.exp(x.float()).to(dtype))
    assert "vector<" in text


def test_double_precision_calls_the_library_where_there_is_one() -> None:
    x = spread(-3, 3).double()
    (y, z), text = computed([torch.tanh, torch.exp], [x, x])
    torch.testing.assert_close(y, torch.tanh(x), rtol=1e-14, atol=1e-15)
    torch.testing.assert_close(z, torch.exp(x), rtol=1e-14, atol=0)
    assert "vector<" in text


@pytest.mark.parametrize(("feature", "width"), [("avx2", 8), ("none", 4)])
def test_shorter_vectors_have_the_same_functions(feature: str, width: int) -> None:
    here = detect(threads=1)
    if here.name != "x86_64":
        pytest.skip("the features named are x86's")
    x = spread(-3, 3)
    functions = [torch.exp, torch.sin, torch.erf]
    found, text = computed(functions, [x] * 3, override(here, feature=feature))
    assert f"vector<{width}xf32>" in text
    for function, y in zip(functions, found, strict=True):
        torch.testing.assert_close(y, function(x), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("bits", "element", "lanes", "operands", "name"),
    [
        (512, "f32", 16, 1, "_ZGVeN16v_expf"),
        (512, "f64", 8, 2, "_ZGVeN8vv_exp"),
        (256, "f32", 8, 1, "_ZGVdN8v_expf"),
        (128, "f32", 4, 1, "_ZGVbN4v_expf"),
    ],
)
def test_the_library_s_names_say_what_they_take(
    bits: int, element: str, lanes: int, operands: int, name: str
) -> None:
    assert library_name("exp", bits, element, lanes, operands) == name
