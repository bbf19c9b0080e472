"""Scalars: read by their type, checked for their range, handed to C bit by bit."""

from __future__ import annotations

import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import UsageError
from kernelmark.kernelfile.ctype import find_type, number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1024", 1024), ("0x10", 16), ("-3", -3), ("2^10", 1024), ("1e3", 1000.0), ("0.5", 0.5),
        ("true", True), ("False", False), ("float16", "float16"), ("007", 7),
    ],
)  # fmt: skip
def test_a_value_is_a_number_where_it_reads_as_one(text: str, value: object) -> None:
    assert number(text) == value
    assert type(number(text)) is type(value)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("int8_t", -128, 127), ("uint8_t", 0, 255), ("int", -(2**31), 2**31 - 1),
        ("unsigned", 0, 2**32 - 1), ("long long", -(2**63), 2**63 - 1), ("size_t", 0, 2**64 - 1),
    ],
)  # fmt: skip
def test_integers_are_checked_for_their_range(name: str, low: int, high: int) -> None:
    ctype = find_type(name)
    assert ctype is not None
    for value in (low, high):
        assert ctype.parse(str(value), "n") == value
        assert ctype.pass_by_value(value).value == value
    for value in (low - 1, high + 1):
        with pytest.raises(UsageError, match=f"from {low} to {high}"):
            ctype.parse(str(value), "n")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("int", "1.5", "whole number"), ("int", "many", "give a number"), ("bool", "2", "true, false"),
        ("half", "70000", "65504"), ("float", "1e39", "up to"), ("float", "x", "give a number"),
        ("int", "true", "give a number"),
    ],
)  # fmt: skip
def test_what_is_no_such_number_is_refused(name: str, text: str, told: str) -> None:
    ctype = find_type(name)
    assert ctype is not None
    with pytest.raises(UsageError, match=told):
        ctype.parse(text, "n")


@given(st.floats(min_value=-65504, max_value=65504, width=32))
def test_16_bit_floats_are_handed_over_as_torch_rounds_them(value: float) -> None:
    for name, dtype in (("half", torch.float16), ("__nv_bfloat16", torch.bfloat16)):
        ctype = find_type(name)
        assert ctype is not None
        expected = torch.tensor(value, dtype=torch.float32).to(dtype).view(torch.int16).item()
        assert struct.pack("<H", ctype.pass_by_value(value).bits) == struct.pack("<h", expected)


def test_the_order_of_words_does_not_matter_and_unknown_names_are_none() -> None:
    assert find_type("long unsigned int") == find_type("unsigned long")
    assert find_type("short int") == find_type("short")
    assert find_type("Tensor") is None
