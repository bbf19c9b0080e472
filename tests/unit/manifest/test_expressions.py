from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import ManifestError
from kernelmark.manifest.expressions import (
    DTYPE_BYTES,
    Expression,
    ExpressionError,
    constant,
    parse,
    unknown_dtype,
)

VALUES = {"B": 2, "M": 3, "N": 5, "K": 7, "scale": 0.5, "causal": True, "mode": "fast", "T": "float16"}


def value_of(text: str | int | float) -> Any:
    return parse(text).evaluate(VALUES, present=("bias",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (12, 12),
        (0.25, 0.25),
        (-3, -3),
        ("N", 5),
        (" N ", 5),
        ("2*B*M*N*K", 420),
        ("K // 2", 3),
        ("K / 2", 3.5),
        ("K % 4", 3),
        ("B ** 10", 1024),
        ("-K + 10", 3),
        ("(B +\n M) * N", 25),
        ("ceil_div(K, 2)", 4),
        ("ceil_div(M * 1.25, 1)", 4),
        ("min(B, M, N)", 2),
        ("max(B, K)", 7),
        ("log2(8)", 3.0),
        ("sizeof(T)", 2),
        ("sizeof(float64)", 8),
        ("T", "float16"),
        ("bfloat16", "bfloat16"),
        ("mode", "fast"),
        ("'exact'", "exact"),
        ("N if causal else K", 5),
        ("N if mode == 'exact' else K", 7),
        ("1 if B < M <= 3 else 0", 1),
        ("1 if B < M < 3 else 0", 0),
        ("present(bias) * N", 5),
        ("present(mask) * N", 0),
    ],
)
def test_an_expression_has_the_value_python_would_give_it(text: str | int | float, expected: object) -> None:
    found = value_of(text)
    assert found == expected
    assert type(found) is type(expected)


def test_an_operand_that_is_not_chosen_is_not_evaluated() -> None:
    assert value_of("N if causal else missing") == 5


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("", 1, "empty"),
        ("B +", 3, "not an expression"),
        ("B @ K", 1, "'B @ K' is not in the language"),
        ("B.real", 1, "'B.real' is not in the language"),
        ("B[0]", 1, "'B[0]' is not in the language"),
        ("[B]", 1, "'[B]' is not in the language"),
        ("lambda: 1", 1, "is not in the language"),
        ("(yield)", 2, "is not in the language"),
        ("B and K", 1, "is not in the language"),
        ("f'{B}'", 1, "is not in the language"),
        ("1j", 1, "is not in the language"),
        ("~B", 1, "is not in the language"),
        ("B is K", 1, "not in the language"),
        ("B + True", 5, "True is no number"),
        ("None", 1, "None is no number"),
        ("2 * open(B)", 5, "no function 'open'"),
        ("mim(B, K)", 1, "did you mean 'min'"),
        ("min(B)", 1, "min takes 2 to 8 positional argument(s)"),
        ("log2(x=B)", 1, "log2 takes 1 positional argument(s)"),
        ("min(*B, K)", 5, "'*B' is not in the language"),
        ("sizeof(2)", 8, "sizeof takes a dtype or dtype variable, not '2'"),
        ("present(a + b)", 9, "present takes the name of an optional input"),
        ("(lambda: B)()", 1, "is not in the language"),
        ("1if B else 2", 1, "not an expression"),
        ("B × K", 3, "only printable ASCII"),
        ("B\0", 2, "only printable ASCII"),
        ("9" * 60, 1, "bits; at most 128"),
        ("1e400", 1, "the number is inf"),
        ("+".join("B" * 300), 500, "longer than 500"),
        ("-" * 60 + "B", 41, "nested more than 40 deep"),
        ("(" * 250 + "B" + ")" * 240, 201, "not an expression"),
    ],
)
def test_what_is_not_in_the_language_is_refused_with_its_column(text: str, column: int, problem: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert problem in str(caught.value)
    assert f"column {column}:" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("B + KK", 5, "'KK' has no value; did you mean 'K'? names with a value here: B, M, N, K, scale"),
        ("B + k", 5, "did you mean 'K'?"),
        ("B // (M - 3)", 1, "division by zero in B // (M - 3)"),
        ("B % 0", 1, "division by zero"),
        ("0 ** -1", 1, "division by zero"),
        ("ceil_div(B, 0)", 1, "division by zero"),
        ("B ** 65", 6, "exponent 65 is outside -64 to 64"),
        ("(2 ** 64) ** 3", 1, "at most 128 are allowed"),
        ("(1e300 * 1e300)", 2, "the number is inf"),
        ("1e300 ** 2", 1, "too large for a float"),
        ("ceil_div(1e300, 1e-300)", 1, "too large"),
        ("(-8) ** 0.5", 1, "is not a real number"),
        ("2 * T", 5, "T is 'float16', not a number; its size in bytes is sizeof(...)"),
        ("2 * mode", 5, "mode is 'fast', not a number"),
        ("mode < 3", 1, "mode is 'fast', not a number"),
        ("log2(B - 2)", 6, "log2 of 0"),
        ("sizeof(B)", 8, "sizeof of 2, which is no dtype"),
    ],
)
def test_what_has_no_value_is_refused_with_its_column(text: str, column: int, problem: str) -> None:
    expression = parse(text)
    with pytest.raises(ExpressionError) as caught:
        expression.evaluate(VALUES)
    assert problem in str(caught.value)
    assert f"expression {expression.text!r}, column {column}:" in str(caught.value)


def test_the_names_are_told_apart_by_what_they_are_read_as() -> None:
    expression = parse("B * K * sizeof(T) + present(bias) * min(B, H)")
    assert (expression.names, expression.sized, expression.asked) == (("B", "K", "H"), ("T",), ("bias",))


def test_a_constant_has_its_value_and_no_names() -> None:
    assert constant(True).evaluate({}) is True
    assert constant(True).names == ()


_OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_leaves = st.one_of(st.integers(1, 999).map(str), st.sampled_from("BMNK"))
_arithmetic = st.recursive(
    _leaves,
    lambda part: st.tuples(part, st.sampled_from(sorted(_OPERATORS)), part).map(lambda t: f"({' '.join(t)})"),
    max_leaves=8,
)


def _by_hand(text: str) -> int | None:
    """Evaluate a fully parenthesised expression without a parser of expressions; None where it has no value."""
    stack: list[Any] = []
    for token in text.replace("(", " ( ").replace(")", " ) ").split():
        if token == ")":
            right, symbol, left = stack.pop(), stack.pop(), stack.pop()
            stack.pop()
            if symbol in ("//", "%") and right == 0:
                return None
            stack.append(_OPERATORS[symbol](left, right))
        elif token == "(" or token in _OPERATORS:
            stack.append(token)
        else:
            stack.append(VALUES[token] if token in VALUES else int(token))
    return stack.pop()


@given(_arithmetic)
def test_nested_arithmetic_agrees_with_a_stack_machine(text: str) -> None:
    expected = _by_hand(text)
    expression = parse(text)
    if expected is None:
        with pytest.raises(ExpressionError, match="division by zero"):
            expression.evaluate(VALUES)
    else:
        assert expression.evaluate(VALUES) == expected


@given(st.one_of(st.text(), st.text(alphabet="BK01.()+-*/%<=' ,ifelsmaxnpr\n\t_[]{}:@\"\\")))
def test_any_text_is_an_expression_or_an_expression_error(text: str) -> None:
    try:
        expression = parse(text)
        assert isinstance(expression, Expression)
        expression.evaluate(VALUES)
    except ManifestError as error:
        assert isinstance(error, ExpressionError)  # noqa: PT017 - either way out is right


def test_every_size_is_the_size_torch_gives() -> None:
    assert {name: getattr(torch, name).itemsize for name in DTYPE_BYTES} == DTYPE_BYTES


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("half", "float16"),
        ("bf16", "bfloat16"),
        ("torch.float32", "float32"),
        ("float8_e4m3", "float8_e4m3fn"),
    ],
)
def test_a_name_that_is_no_dtype_is_answered_with_the_one_that_is_meant(written: str, meant: str) -> None:
    assert repr(meant) in unknown_dtype(written)
