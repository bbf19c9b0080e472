"""The one policy of tolerance: who decides, by what, and that every way in gets the same answer."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import UsageError
from kernelmark.verify import (
    Elementwise,
    Exact,
    Form,
    Normalised,
    Policy,
    Reduction,
    Tolerances,
    check_outputs,
    for_dtype,
    policy,
    tolerances_of,
)

FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


@pytest.mark.parametrize("dtype", FLOATS)
def test_where_nothing_is_said_the_form_and_the_dtype_decide(dtype: str) -> None:
    whole, why = policy(dtype)
    assert isinstance(whole, Normalised)
    assert dtype in why
    each, why = policy(getattr(torch, dtype), Form.ELEMENTS)
    assert each == for_dtype(dtype)
    assert dtype in why


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8"])
def test_what_is_exact_stays_exact_whatever_is_said(dtype: str) -> None:
    rule, why = policy(dtype, asked=Tolerances(atol=1.0, source="--atol"))
    assert rule == Elementwise(0.0, 0.0)
    assert why == f"by its dtype {dtype}"


def test_eight_bit_floats_are_compared_by_their_neighbours_in_every_form() -> None:
    assert policy("float8_e4m3fn").rule == policy("float8_e4m3fn", Form.ELEMENTS).rule


def test_what_is_asked_for_goes_before_the_file_and_the_file_before_the_dtype() -> None:
    asked = Tolerances(figure=0.01, source="--tolerance")
    file = Tolerances(length=4096, source="reference.py")
    assert policy("float32", asked=asked, file=file) == (Normalised(0.01), "--tolerance")
    assert policy("float32", file=file) == (Reduction(4096), "reference.py")


def test_each_of_the_two_figures_comes_from_the_first_who_says_it() -> None:
    asked = Tolerances(atol=0.5, source="command line")
    file = Tolerances(atol=1e-3, rtol=1e-2, source="reference.py")
    rule, why = policy("float32", asked=asked, file=file)
    assert rule == Elementwise(0.5, 1e-2)
    assert why == "atol: command line, rtol: reference.py"
    rule, why = policy("bfloat16", asked=asked)
    assert rule == Elementwise(0.5, for_dtype("bfloat16").rtol)
    assert why == "atol: command line, rtol: by its dtype bfloat16"


def test_a_figure_that_is_asked_for_is_not_mixed_with_the_files_elements() -> None:
    file = Tolerances(atol=0.0, rtol=0.0, source="suite")
    assert policy("float32", asked=Tolerances(atol=1.0, rtol=1.0, source="x"), file=file).source == "x"
    assert policy("float32", asked=Tolerances(figure=0.1, source="x"), file=file) == (Normalised(0.1), "x")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"figure": -1.0}, "at least 0"),
        ({"figure": 0}, "atol 0 and rtol 0"),
        ({"atol": float("nan")}, "finite"),
        ({"rtol": True}, "finite"),
        ({"length": 0}, "1 or more"),
        ({"figure": 0.1, "atol": 0.1}, "excludes"),
        ({"length": 8, "rtol": 0.1}, "excludes"),
    ],
)
def test_what_no_rule_takes_is_an_error_of_use_that_names_who_said_it(said: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Tolerances(**said, source="here")


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (0.01, Normalised(0.01)),
        ((1e-3, 1e-2), Elementwise(1e-3, 1e-2)),
        (Reduction(64), Reduction(64)),
        (None, policy("float32").rule),
    ],
)
def test_what_a_caller_writes_is_read(value: object, rule: object) -> None:
    assert policy("float32", asked=tolerances_of(value, "tolerance")).rule == rule


@pytest.mark.parametrize("value", ["1e-3", (1,), {"atol": 1}, True])
def test_what_cannot_be_read_lists_what_can(value: object) -> None:
    with pytest.raises(UsageError, match=r"tolerance = .*Reduction\(length\)"):
        tolerances_of(value, "tolerance")


def test_a_declaration_takes_a_policy_and_each_output_shows_rule_and_source() -> None:
    expected = (torch.ones(4), torch.ones(4, dtype=torch.int64))
    declaration = Exact(Policy(asked=Tolerances(atol=0.5, rtol=0.0, source="--atol")))
    first, second = check_outputs((torch.ones(4) + 0.4, expected[1]), expected, declaration).outputs
    assert (first.tolerance, first.tolerance_source) == ("atol=0.5 rtol=0", "--atol")
    assert (second.tolerance, second.tolerance_source) == ("exact", "by its dtype int64")
    bare = check_outputs(expected, expected, Exact()).outputs[0]
    assert bare.tolerance_source == "each element, by its dtype float32"


@given(st.integers(1, 12), st.floats(1e-7, 1e-2))
def test_the_same_answer_passes_or_fails_alike_however_the_same_thing_is_said(
    power: int, error: float
) -> None:
    expected = torch.linspace(-1, 1, 2**power)
    got = expected * (1 + error)
    said = Tolerances(atol=1e-5, rtol=1e-4)
    verdicts = {
        check_outputs(got, expected, Exact(rules)).passed
        for rules in (said, Policy(asked=said), Policy(file=said), Policy(Form.ELEMENTS, file=said),
                      Elementwise(1e-5, 1e-4), {0: Elementwise(1e-5, 1e-4)})
    }  # fmt: skip
    assert len(verdicts) == 1


def test_a_float32_product_with_a_long_sum_names_the_rule_that_fits() -> None:
    random = torch.Generator().manual_seed(1)
    a, b = (torch.randn(16, 8192, generator=random) for _ in range(2))
    expected = (a.double() @ b.double().T).float()
    other = sum((a[:, i : i + 64] @ b[:, i : i + 64].T for i in range(0, 8192, 64)), torch.zeros(16, 16))
    refused = check_outputs(other, expected, Exact())
    assert not refused.passed
    assert "Reduction(length)" in refused.message
    assert check_outputs(other, expected, Exact(Reduction(8192))).passed
    assert check_outputs(other, expected, Exact(Policy())).passed
    wrong = other.clone()
    wrong[3, 3] += 5
    assert "Reduction" not in check_outputs(wrong, expected, Exact()).message
