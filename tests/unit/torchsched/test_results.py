"""Results as destination arguments, and what bufferisation makes of them."""

from __future__ import annotations

import pytest

from kernelmark.errors import ModelLoweringError
from torchsched.elements import Element
from torchsched.results import entry_of, results_to_arguments
from torchsched.signature import Argument, Result, Role, Signature, TensorType

ir = pytest.importorskip("torch_mlir.ir")
VECTOR = TensorType((4,), Element.F32)
X = Argument("x", Role.INPUT, VECTOR)


def _module(text: str):
    context = ir.Context()
    with context:
        return ir.Module.parse(text)


def _bufferised(module) -> str:
    from torch_mlir.passmanager import PassManager

    with module.context:
        PassManager.parse(
            "builtin.module(one-shot-bufferize{bufferize-function-boundaries"
            " function-boundary-type-conversion=identity-layout-map},canonicalize,cse)"
        ).run(module.operation)
    return str(module)


TWICE = """
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = arith.addf %x, %x : tensor<4xf32>
  return %0, %0, %x : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
"""


def test_each_result_becomes_an_argument_after_the_others() -> None:
    module = _module(TWICE)
    results_to_arguments(module, Signature((X,), tuple(Result(f"y{i}", VECTOR) for i in range(3))))
    function = entry_of(module)
    assert [str(each) for each in function.type.inputs] == ["tensor<4xf32>", *["memref<4xf32>"] * 3]
    assert list(function.type.results) == []
    assert "llvm.emit_c_interface" in function.attributes
    assert str(module).count("bufferization.materialize_in_destination") == 3


ALIASES = """
#id = affine_map<(i) -> (i)>
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
    ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  return %0, %0, %x : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
"""


def test_a_result_that_is_an_argument_or_another_result_is_copied() -> None:
    module = _module(ALIASES)
    results_to_arguments(module, Signature((X,), tuple(Result(f"y{i}", VECTOR) for i in range(3))))
    text = _bufferised(module)
    assert text.count("memref.copy") == 3 - text.count("outs(%arg1 : memref<4xf32>)")
    assert "memref.copy %arg0, %arg3" in text


def test_results_of_no_dimension_and_of_no_element_become_arguments() -> None:
    module = _module(
        "func.func @main() -> (tensor<i64>, tensor<0x3xi1>) {\n"
        "  %0 = arith.constant dense<7> : tensor<i64>\n  %1 = tensor.empty() : tensor<0x3xi1>\n"
        "  return %0, %1 : tensor<i64>, tensor<0x3xi1>\n}"
    )
    types = (TensorType((), Element.I64), TensorType((0, 3), Element.I1))
    results_to_arguments(module, Signature((), tuple(Result(str(each), each) for each in types)))
    assert [str(each) for each in entry_of(module).type.inputs] == ["memref<i64>", "memref<0x3xi1>"]


def test_a_function_without_results_keeps_its_arguments() -> None:
    module = _module("func.func @main(%x: tensor<4xf32>) { return }")
    results_to_arguments(module, Signature((X,), ()))
    assert [str(each) for each in entry_of(module).type.inputs] == ["tensor<4xf32>"]


def test_attributes_of_arguments_and_results_do_not_outlive_their_number() -> None:
    module = _module(
        'func.func @main(%x: tensor<4xf32> {a.b = 1}) -> (tensor<4xf32> {a.b = "c"})'
        " { return %x : tensor<4xf32> }"
    )
    results_to_arguments(module, Signature((X,), (Result("y", VECTOR),)))
    assert "a.b" not in str(module)


@pytest.mark.parametrize(
    ("signature", "problem"),
    [
        (Signature((), (Result("y", VECTOR),)), "has the arguments"),
        (Signature((X,), ()), "has the results"),
        (Signature((X,), (Result("y", TensorType((4,), Element.F64)),)), "tensor<4xf64>"),
    ],
)
def test_a_module_of_another_signature_is_refused(signature: Signature, problem: str) -> None:
    module = _module("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }")
    with pytest.raises(ModelLoweringError, match=problem):
        results_to_arguments(module, signature)


def test_a_module_without_main_is_refused() -> None:
    with pytest.raises(ModelLoweringError, match="no function 'main'"):
        entry_of(_module("func.func @other() { return }"))
