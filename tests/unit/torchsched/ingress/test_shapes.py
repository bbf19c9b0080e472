"""The command line's words for inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import UsageError
from torchsched.elements import Element
from torchsched.ingress.shapes import (
    InputSpec,
    Literal,
    Values,
    parse_init_args,
    parse_input_shapes,
)


@pytest.mark.spec("L9")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "1024x1024xf32xrnd,1024x1024xf32xid",
            (InputSpec((1024, 1024), Element.F32), InputSpec((1024, 1024), Element.F32, Values.IDENTITY)),
        ),
        ("8x4", (InputSpec((8, 4)),)),
        (" 8 x 4 xbf16 , 3xrnd", (InputSpec((8, 4), Element.BF16), InputSpec((3,)))),
        ("4xf32x0", (InputSpec((4,), Element.F32, Values.ZEROS),)),
        ("4x0", (InputSpec((4, 0)),)),
        ("4xi8x1", (InputSpec((4,), Element.I8, Values.ONES),)),
        ("f64", (InputSpec((), Element.F64),)),
        ("32xi64xrnd10", (InputSpec((32,), Element.I64, Values.RANDOM, 10),)),
        ("4x4xtril,4xsign", (InputSpec((4, 4), None, Values.LOWER), InputSpec((4,), None, Values.SIGNS))),
        (
            "2xf32,=3.5,=None,=[1, 2]",
            (InputSpec((2,), Element.F32), Literal(3.5), Literal(None), Literal([1, 2])),
        ),
        ("='a,b'", (Literal("a,b"),)),
        ("", ()),
    ],
)
def test_inputs_are_read(text: str, expected: tuple[Any, ...]) -> None:
    assert parse_input_shapes(text) == expected


@pytest.mark.spec("L9")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("4xf33", r"input '4xf33': 'f33' is no element type; did you mean 'f32'"),
        ("4xf32xrandom", r"'random' says no values; .*values: rnd, id, 0, 1"),
        ("4xf32xrndx2", r"'2' stands after the values"),
        ("4x", "has an empty part"),
        ("4,,4", "has an empty part"),
        (",", "has an empty part"),
        ("-4xf32", "'-4' is no element type"),
        ("4.5xf32", "'4.5' is no element type"),
        ("10 24xf32", "'10 24' is no element type"),
        ("rnd", "name the element type"),
        ("4xf32xid", "id needs two sizes or more, and there is 1"),
        ("4x3xsym", "last two sizes to be equal"),
        ("4xf32xrnd10", "a bound belongs to an integer type"),
        ("4xrnd10", "a bound belongs to an integer type"),
        ("4xi8xrnd1000", "the bound must be from 1 to 128"),
        ("4xi64xrnd0", "the bound must be from 1"),
        ("4xu8xsign", "sign needs a type that holds -1"),
        ("4xi32xprob", "prob needs a floating-point type"),
        ("x".join(["2"] * 17), "17 sizes; at most 16"),
        ("=__import__('os')", "is no Python literal"),
        ("=(1", "left open"),
        ("='a", "left open"),
    ],
)
def test_a_malformed_input_is_refused_and_shown(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_input_shapes(text)


def _bounds(element: Element | None, values: Values) -> st.SearchStrategy[int | None]:
    if values is not Values.RANDOM or element is None or element.is_float or element is Element.I1:
        return st.none()
    return st.none() | st.integers(1, element.range[1] + 1)


@st.composite
def specs(draw: st.DrawFn) -> InputSpec:
    values = draw(st.sampled_from([Values.RANDOM, Values.ZEROS, Values.ONES, Values.IDENTITY]))
    least = 2 if values is Values.IDENTITY else 0
    shape = tuple(draw(st.lists(st.integers(0, 10**6), min_size=least, max_size=6)))
    needed = values in (Values.ZEROS, Values.ONES) or not shape
    element = draw(st.sampled_from(Element) if needed else st.none() | st.sampled_from(Element))
    return InputSpec(shape, element, values, draw(_bounds(element, values)))


literals = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=6,
)


@given(st.lists(specs(), min_size=1, max_size=4))
def test_what_is_written_is_read_back(inputs: list[InputSpec]) -> None:
    assert parse_input_shapes(",".join(map(str, inputs))) == tuple(inputs)


@given(st.lists(specs(), min_size=1, max_size=4), st.sampled_from([" ", "  ", "\t"]))
def test_spaces_around_sizes_and_commas_count_for_nothing(inputs: list[InputSpec], space: str) -> None:
    text = ",".join(map(str, inputs))
    spaced = text.replace(",", f"{space},{space}")
    assert parse_input_shapes(f"{space}{spaced}{space}") == tuple(inputs)


@given(st.text(alphabet="0123456789xfibrnd,=[]()'\" -.", max_size=40))
def test_any_text_is_read_or_refused_by_a_usage_error(text: str) -> None:
    try:
        read = parse_input_shapes(text)
    except UsageError:
        return
    assert all(isinstance(each, InputSpec | Literal) for each in read)


@given(st.lists(literals, max_size=4))
def test_any_literals_are_read_back_as_init_args(values: list[Any]) -> None:
    assert parse_init_args(repr(values)) == tuple(values)


@pytest.mark.spec("L9")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("None", None),
        (" None ", None),
        ("[]", ()),
        ("[1, 8]", (1, 8)),
        ("1, 8", (1, 8)),
        ("64", (64,)),
        ("[64, (3, 3), 'same', True, 1e-5]", (64, (3, 3), "same", True, 1e-5)),
    ],
)
def test_init_args_are_read(text: str | None, expected: tuple[Any, ...] | None) -> None:
    assert parse_init_args(text) == expected


@pytest.mark.parametrize("text", ["[1, x]", "open('/etc/passwd')", "[1", "(" * 500])
def test_init_args_that_are_no_literals_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--init-args: .* is no Python literal"):
        parse_init_args(text)


# --- values ------------------------------------------------------------------------------------------


def _draw(text: str, *, seed: int = 0, element: Element = Element.F32) -> torch.Tensor:
    (spec,) = parse_input_shapes(text)
    assert isinstance(spec, InputSpec)
    return spec.draw(torch.Generator().manual_seed(seed), element=element)


@pytest.mark.spec("L9")
@pytest.mark.parametrize("element", [each for each in Element if each.is_float])
def test_random_floats_are_signed_and_repeatable(element: Element) -> None:
    drawn = _draw("100x100", element=element)
    assert drawn.dtype == element.torch
    assert -1 <= drawn.min() < -0.9
    assert 0.9 < drawn.max() <= 1
    assert torch.equal(drawn, _draw("100x100", element=element))
    assert not torch.equal(drawn, _draw("100x100", element=element, seed=1))


@pytest.mark.spec("L9")
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1000xi64xrnd7", set(range(7))),
        ("1000xi32", {0, 1}),
        ("1000xi1", {False, True}),
        ("3xi64x1", {1}),
        ("3xf32x0", {0.0}),
        ("1000xf32xsign", {-1.0, 1.0}),
    ],
)
def test_values_are_those_that_were_asked_for(text: str, values: set[Any]) -> None:
    assert set(_draw(text).tolist()) == values


def test_an_identity_is_one_in_each_entry_of_a_batch_and_contiguous() -> None:
    drawn = _draw("3x4x5xid")
    assert drawn.is_contiguous()
    assert all(torch.equal(each, torch.eye(4, 5)) for each in drawn)


def test_a_tensor_of_no_dimension_can_be_drawn() -> None:
    assert _draw("f64x1").shape == ()


def test_shaped_values_have_their_shape() -> None:
    assert torch.equal(_draw("5x5xtriu").tril(-1), torch.zeros(5, 5))
    assert torch.equal(_draw("5x5xtril").triu(1), torch.zeros(5, 5))
    symmetric = _draw("5x5xsym")
    assert torch.equal(symmetric, symmetric.mT)
    torch.testing.assert_close(_draw("5x7xprob").sum(-1), torch.ones(5))
