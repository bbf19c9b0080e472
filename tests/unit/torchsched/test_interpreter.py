"""Transform text is applied to a module, and what is wrong with it is said with its line."""

from __future__ import annotations

from typing import Any

import pytest

from torchsched.bindings import available, bindings
from torchsched.interpreter import TransformError, apply_sequence, sequence

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)

MATMUL = """
func.func @main(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>, %c: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}
"""
MATCH = (
    '%op = transform.structured.match ops{["linalg.matmul"]} in %root'
    " : (!transform.any_op) -> !transform.any_op"
)


@pytest.fixture
def module() -> Any:
    ir = bindings("ir")
    context = ir.Context()
    return ir.Module.parse(MATMUL, context)


def test_a_sequence_rewrites_the_module(module: Any) -> None:
    tile = (
        "%t, %l = transform.structured.tile_using_for %op tile_sizes [4]"
        " : (!transform.any_op) -> (!transform.any_op, !transform.any_op)"
    )
    apply_sequence(module, sequence(f"{MATCH}\n{tile}"))
    assert "scf.for" in str(module)


def test_a_sequence_that_finds_nothing_leaves_the_module_as_it_is(module: Any) -> None:
    before = str(module)
    apply_sequence(module, sequence(MATCH.replace("linalg.matmul", "linalg.conv_2d")))
    assert str(module) == before


def test_text_that_is_no_mlir_is_refused_with_its_line(
    module: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TransformError, match=r"the text cannot be parsed: (.|\n)*no_such_op") as raised:
        apply_sequence(module, sequence("\ntransform.no_such_op"))
    assert raised.value.line == 4  # two lines of wrapping, an empty one, then this
    assert capfd.readouterr().err == ""


def test_a_transform_that_fails_says_why_and_where(module: Any) -> None:
    vectorise = "transform.structured.vectorize %op vector_sizes [3] : !transform.any_op"
    with pytest.raises(TransformError, match="Attempted to vectorize"):
        apply_sequence(module, sequence(f"{MATCH}\n{vectorise}"))


def test_text_without_the_sequence_is_refused(module: Any) -> None:
    with pytest.raises(TransformError, match=r"has no transform\.named_sequence @__transform_main"):
        apply_sequence(module, "module {}")
