"""The table of element types, against torch's own facts."""

from __future__ import annotations

import pytest
import torch

from kernelmark.errors import UsageError
from torchsched.elements import FLOATS, Element


@pytest.mark.parametrize("element", Element)
def test_an_element_agrees_with_torch(element: Element) -> None:
    dtype = element.torch
    assert Element.from_torch(dtype) is element
    assert element.bytes == dtype.itemsize
    assert element.is_float is dtype.is_floating_point is (element in FLOATS)
    assert Element.parse(str(element)) is element


@pytest.mark.parametrize("element", [each for each in Element if not each.is_float])
def test_a_range_is_that_of_the_type(element: Element) -> None:
    expected = (0, 1)
    if element is not Element.I1:
        info = torch.iinfo(element.torch)
        expected = (info.min, info.max)
    assert element.range == expected


def test_a_float_has_no_range() -> None:
    with pytest.raises(TypeError, match="f32 is no integer type"):
        _ = Element.F32.range


@pytest.mark.parametrize(
    ("text", "hint"), [("F32", "did you mean 'f32'"), ("fp32", "did you mean 'f32'"), ("half", "f64, f32")]
)
def test_an_unknown_name_is_refused_with_near_ones(text: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        Element.parse(text)


def test_a_dtype_that_cannot_be_compiled_is_refused() -> None:
    with pytest.raises(UsageError, match=r"complex64 cannot be compiled; there are float64, float32"):
        Element.from_torch(torch.complex64)
