"""Types as MLIR writes them, and signatures that cannot be."""

from __future__ import annotations

import pytest

from torchsched.elements import Element
from torchsched.signature import Argument, Result, Role, Signature, TensorType

MATRIX = TensorType((4, 8), Element.F32)
FLAGS = TensorType((4,), Element.I1)


@pytest.mark.parametrize(
    ("type_", "tensor", "memref", "numel", "nbytes"),
    [
        (MATRIX, "tensor<4x8xf32>", "memref<4x8xf32>", 32, 128),
        (TensorType((), Element.BF16), "tensor<bf16>", "memref<bf16>", 1, 2),
        (TensorType((0, 3), Element.I64), "tensor<0x3xi64>", "memref<0x3xi64>", 0, 0),
        (TensorType((2,), Element.U8), "tensor<2xi8>", "memref<2xi8>", 2, 2),
    ],
    ids=str,
)
def test_a_type_is_written_as_mlir_writes_it(
    type_: TensorType, tensor: str, memref: str, numel: int, nbytes: int
) -> None:
    assert (type_.mlir, type_.memref, type_.numel, type_.nbytes) == (tensor, memref, numel, nbytes)


def test_a_type_is_shown_with_its_own_element() -> None:
    assert str(TensorType((2, 3), Element.U8)) == "2x3xu8"


def test_a_signature_tells_inputs_from_state_and_outputs_from_writes() -> None:
    signature = Signature(
        (Argument("w", Role.PARAMETER, MATRIX), Argument("x", Role.INPUT, FLAGS)),
        (Result("x", FLAGS, writes="x"), Result("out", MATRIX)),
    )
    assert [each.name for each in signature.inputs] == ["x"]
    assert [each.name for each in signature.outputs] == ["out"]
    assert signature.index_of("x") == 1
    with pytest.raises(KeyError):
        signature.index_of("y")


def test_two_arguments_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two arguments are called 'x'"):
        Signature((Argument("x", Role.INPUT, MATRIX), Argument("x", Role.INPUT, MATRIX)), ())


@pytest.mark.parametrize("writes", ["x", "nothing"])
def test_a_result_that_cannot_be_written_to_its_argument_is_refused(writes: str) -> None:
    with pytest.raises(ValueError, match="cannot write argument"):
        Signature((Argument("x", Role.INPUT, MATRIX),), (Result("r", FLAGS, writes=writes),))


def test_the_main_element_is_the_float_of_most_bytes() -> None:
    small = Argument("s", Role.INPUT, TensorType((4,), Element.F64))
    large = Argument("l", Role.PARAMETER, TensorType((64,), Element.BF16))
    index = Argument("i", Role.INPUT, TensorType((1000,), Element.I64))
    assert Signature((small, large, index), ()).main_element is Element.BF16
    assert Signature((index,), ()).main_element is Element.F32
