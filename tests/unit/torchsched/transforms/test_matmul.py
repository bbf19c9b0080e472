"""Models with products of matrices, as torch-mlir imports them, by the shipped pipelines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kernelmark.errors import ScheduleError
from torchsched.bindings import available, bindings
from torchsched.building import BuildOptions, Built, build
from torchsched.descriptors import find_schedule
from torchsched.elements import Element
from torchsched.ingress import import_model
from torchsched.lowering import lower
from torchsched.targets import Target, detect, override
from torchsched.transforms.matmul import pack_and_tile

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)


class Calls(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, dim=-1) @ v


MODELS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "product": (torch.matmul, [(37, 45), (45, 29)]),
    "transposed left": (lambda a, b: a.T @ b, [(45, 37), (45, 29)]),
    "transposed right": (lambda a, b: a @ b.T, [(37, 45), (29, 45)]),
    "transposed both": (lambda a, b: a.T @ b.T, [(45, 37), (29, 45)]),
    "addmm": (torch.addmm, [(37, 29), (37, 45), (45, 29)]),
    "linear": (F.linear, [(37, 45), (29, 45), (29,)]),
    "linear, relu": (lambda *a: F.relu(F.linear(*a)), [(37, 45), (29, 45), (29,)]),
    "linear, gelu": (lambda *a: F.gelu(F.linear(*a)), [(37, 45), (29, 45), (29,)]),
    "linear, swish": (lambda *a: swish(F.linear(*a)), [(37, 45), (29, 45), (29,)]),
    "linear of rows of rows": (lambda *a: F.relu(F.linear(*a)), [(3, 37, 45), (29, 45), (29,)]),
    "two layers": (
        lambda x, a, b, c, d: F.linear(F.relu(F.linear(x, a, b)), c, d),
        [(37, 45), (64, 45), (64,), (10, 64), (10,)],
    ),
    "stack": (torch.bmm, [(3, 37, 45), (3, 45, 29)]),
    "stack of stacks": (torch.matmul, [(2, 3, 37, 45), (2, 3, 45, 29)]),
    "stack, transposed": (lambda a, b: a @ b.transpose(-1, -2), [(2, 3, 37, 45), (2, 3, 29, 45)]),
    "stack, one right operand": (torch.matmul, [(2, 3, 37, 45), (1, 3, 45, 29)]),
    "einsum": (lambda a, b: torch.einsum("bijl,lk->bijk", a, b), [(2, 3, 7, 45), (45, 29)]),
    "einsum of two sums": (lambda a, b: torch.einsum("ijk,jkl->il", a, b), [(7, 5, 9), (5, 9, 33)]),
    "einsum of many rows": (lambda a, b: torch.einsum("xyk,kpq->xypq", a, b), [(3, 7, 45), (45, 4, 9)]),
    "einsum of rows apart": (lambda a, b: torch.einsum("xky,kn->yxn", a, b), [(3, 45, 7), (45, 20)]),
    "rows of rows, scaled by row": (
        lambda a, b, c: F.linear(a, b) * c,
        [(3, 37, 45), (29, 45), (37, 1)],
    ),
    "rows of rows, masked": (lambda a, b: torch.triu(F.linear(a, b)), [(3, 37, 45), (29, 45)]),
    "dot": (torch.dot, [(1000,), (1000,)]),
    "matrix times vector": (torch.mv, [(37, 45), (45,)]),
    "vector times matrix": (torch.matmul, [(45,), (45, 29)]),
    "column": (torch.matmul, [(37, 45), (45, 1)]),
    "upper triangle": (lambda a, b: torch.triu(a @ b), [(45, 45), (45, 45)]),
    "lower triangle": (lambda a, b: torch.tril(a.T @ b), [(45, 45), (45, 45)]),
    "diagonal": (lambda a, b: torch.diag(a) @ b, [(45,), (45, 29)]),
    "used twice": (lambda a, b: (a @ b) * 0.5 + a @ b, [(45, 45), (45, 45)]),
    "attention": (attention, [(2, 3, 37, 45), (2, 3, 29, 45), (2, 3, 29, 45)]),
}


class Tiled(list[str]):
    """An observer: the modules after products were rewritten."""

    def __call__(self, step: str, module: Any) -> None:
        if "pack_and_tile" in step:
            self.append(str(module))


def made(name: str, dtype: torch.dtype, options: BuildOptions) -> tuple[Built, str, torch.Tensor]:
    """Build and run a model; give it, the module after products were rewritten, and its greatest error."""
    function, shapes = MODELS[name]
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    tiled = Tiled()
    built = build(Calls(function), inputs, options, observer=tiled)
    bound = built.compiled.bind(built.imported.arguments(inputs))
    bound()
    wanted = function(*(each.double() for each in inputs))
    found = built.imported.assemble(bound.results)
    return built, tiled[0], ((found.double() - wanted).abs() / (wanted.abs() + wanted.abs().mean())).max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_right_and_its_products_are_tiled(name: str, dtype: torch.dtype) -> None:
    _, text, error = made(name, dtype, BuildOptions(("matmul",), target=detect(threads=2)))
    assert error < (1e-5 if dtype == torch.float32 else 1e-2)
    assert "vector.fma" in text or "x86.avx512.dot" in text
    # what else adds something up is a row's sum or extreme
    left = [line for line in text.splitlines() if "linalg." in line and "reduction" in line]
    assert not left or name == "attention"


@pytest.mark.parametrize(
    ("name", "pipeline"), [("stack", "bmm"), ("stack of stacks", "bmm"), ("column", "matvec")]
)
def test_the_other_pipelines_serve_too(name: str, pipeline: str) -> None:
    _, _, error = made(name, torch.float32, BuildOptions((pipeline,)))
    assert error < 1e-5


def test_an_elementwise_tail_runs_inside_the_product() -> None:
    built, text, _ = made("linear, gelu", torch.float32, BuildOptions(("matmul",), target=detect(threads=1)))
    assert "math.erf" not in text.partition("scf.for")[0]
    assert text.count("linalg.generic") <= 1  # the weight's transpose, which nothing uses any more
    # a sum is stored once, finished: no tensor of sums besides the result
    result = 37 * 29 * 4
    assert all(space.shape[0] != result for space in built.compiled.workspaces)


def test_a_search_may_set_the_blocks_and_only_those_that_are_declared() -> None:
    options = BuildOptions(("matmul",), values={"mr": 4, "kc": 256})
    built, _, error = made("product", torch.float32, options)
    assert error < 1e-5
    assert built.schedule.values["mr"] == 4
    with pytest.raises(ScheduleError, match=r"mr=5 is none of the choices: 0, \d"):
        made("product", torch.float32, BuildOptions(("matmul",), values={"mr": 5}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_code_for_another_processor_has_its_vectors_and_no_other_ones(dtype: torch.dtype) -> None:
    target = override(detect(threads=2), name="aarch64", feature="sve")
    imported = import_model(
        Calls(torch.matmul), (torch.randn(37, 45).to(dtype), torch.randn(45, 29).to(dtype))
    )
    tiled = Tiled()
    lower(imported, find_schedule("matmul", Element.F32, target), target, observer=tiled)
    text = tiled[0]
    assert "vector.fma %" in text
    assert "vector<4xf32>" in text
    assert "x86" not in text


EMPTY = """
func.func @main(%a: tensor<4x0xf32>, %b: tensor<0x5xf32>, %c: tensor<?x7xf32>, %d: tensor<7x5xf32>,
                %e: tensor<?x5xf32>, %f: tensor<4x5xf32>) -> (tensor<4x5xf32>, tensor<?x5xf32>) {
  %0 = linalg.matmul ins(%a, %b : tensor<4x0xf32>, tensor<0x5xf32>) outs(%f : tensor<4x5xf32>) -> tensor<4x5xf32>
  %1 = linalg.matmul ins(%c, %d : tensor<?x7xf32>, tensor<7x5xf32>) outs(%e : tensor<?x5xf32>) -> tensor<?x5xf32>
  return %0, %1 : tensor<4x5xf32>, tensor<?x5xf32>
}
"""


def test_empty_and_dynamic_products_are_left_alone() -> None:
    ir = bindings("ir")
    module = ir.Module.parse(EMPTY, ir.Context())
    before = str(module)
    pack_and_tile(module, target=Target("x86_64"))
    assert str(module) == before


def test_a_product_inside_a_loop_is_left_alone() -> None:
    ir = bindings("ir")
    text = """
    func.func @main(%a: tensor<8x8xf32>, %n: index) -> tensor<8x8xf32> {
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %r = scf.for %i = %zero to %n step %one iter_args(%x = %a) -> tensor<8x8xf32> {
        %e = tensor.empty() : tensor<8x8xf32>
        %y = linalg.matmul ins(%x, %a : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
        scf.yield %y : tensor<8x8xf32>
      }
      return %r : tensor<8x8xf32>
    }
    """
    module = ir.Module.parse(text, ir.Context())
    pack_and_tile(module, target=Target("x86_64"))
    assert "linalg.matmul" in str(module)


def test_a_tail_that_calls_a_function_over_vectors_is_right_in_f64() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.GELU()).double().eval()
    x = torch.randn(48, 64, dtype=torch.float64)
    with torch.no_grad():
        built = build(model, (x,))
        bound = built.compiled.bind(built.imported.arguments((x,)))
        bound()
        torch.testing.assert_close(built.imported.assemble(bound.results), model(x), rtol=1e-12, atol=1e-12)
