from __future__ import annotations

import pytest
import torch

from kernelmark.errors import UsageError
from torchsched.ingress import parse_input_shapes


def drawn(text: str) -> torch.Tensor:
    (spec,) = parse_input_shapes(text)
    return spec.draw(torch.Generator().manual_seed(0))


@pytest.mark.spec("L9")
@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_matrices_of_a_kind_are_of_that_kind(element: str) -> None:
    symmetric = drawn(f"3x5x5x{element}xsym")
    assert torch.equal(symmetric, symmetric.mT)
    assert symmetric.unique().numel() > 10
    upper = drawn(f"5x7x{element}xtriu")
    assert torch.equal(upper, upper.triu())
    assert (upper[0] != 0).all()
    lower = drawn(f"7x5x{element}xtril")
    assert torch.equal(lower, lower.tril())
    assert (lower[-1] != 0).all()


def test_probabilities_add_up_to_one_and_signs_are_of_both_kinds() -> None:
    assert torch.allclose(drawn("4x9xprob").sum(-1), torch.ones(4))
    assert set(drawn("100xf32xsign").tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("4x5xf32xsym", "last two sizes to be equal"),
        ("4xf32xtriu", "two sizes or more"),
        ("f32xprob", "a size"),
        ("4xi64xprob", "floating-point"),
    ],
)
def test_values_that_no_tensor_of_that_shape_can_have_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_input_shapes(text)
