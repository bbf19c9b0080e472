import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import UsageError
from kernelmark.verify import Exact, Policy, Tolerances, check_outputs, tolerances_of
from kernelmark.verify.numerics import compare, scale_of
from kernelmark.verify.tolerance import (
    EXACT,
    Elementwise,
    Form,
    Normalised,
    OutputScale,
    Reduction,
    Ruling,
    for_dtype,
)

TABLE = {
    torch.float16: 1e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 1e-5,
    torch.float64: 1e-7,
    torch.complex64: 1e-5,
    torch.complex128: 1e-7,
}
EXACT_DTYPES = [
    torch.bool,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz]


@pytest.mark.spec("T24")
@pytest.mark.parametrize("dtype", TABLE)
def test_the_table_gives_each_inexact_dtype_its_tolerance(dtype):
    assert for_dtype(dtype) == Elementwise(TABLE[dtype], TABLE[dtype])
    assert for_dtype(str(dtype)) == for_dtype(str(dtype).removeprefix("torch.")) == for_dtype(dtype)


@pytest.mark.spec("T24")
@pytest.mark.parametrize("dtype", [*EXACT_DTYPES, torch.complex32, torch.float8_e8m0fnu])
def test_everything_else_is_exact(dtype):
    assert for_dtype(dtype) == EXACT
    assert for_dtype(dtype).describe(OutputScale("x")) == "exact"


def _float8_values(dtype):
    values = torch.arange(256, dtype=torch.int64).to(torch.uint8).view(dtype)
    wide = values.to(torch.float64)
    kept = wide[wide.isfinite() & (wide > 0)].sort().values
    return kept.to(dtype)


@pytest.mark.spec("T24")
@pytest.mark.parametrize("dtype", FLOAT8)
def test_an_8_bit_float_may_be_its_neighbour_and_no_more(dtype):
    values = _float8_values(dtype)
    rule = for_dtype(dtype)
    assert compare(values[1:], values[:-1], rule).passed
    assert compare(values[:-1], values[1:], rule).passed
    assert not compare(values[3:], values[:-3], rule).passed
    assert compare(values[3:], values[:-3], rule).mismatched == len(values) - 3


@pytest.mark.parametrize("bad", [-1e-3, math.nan, math.inf, True, "1e-3", None])
def test_a_tolerance_that_is_no_number_is_refused_by_name(bad):
    for build in (lambda: Elementwise(bad, 0), lambda: Elementwise(0, bad), lambda: Normalised(bad)):
        with pytest.raises(UsageError, match="give a finite number"):
            build()


def test_a_normalised_tolerance_of_nothing_is_refused():
    with pytest.raises(UsageError, match="above 0"):
        Normalised(0)


@pytest.mark.parametrize("length", [0, -4, True, 2.0, None])
def test_a_reduction_over_nothing_is_refused(length):
    with pytest.raises(UsageError, match="number of terms"):
        Reduction(length)


def test_an_unknown_accumulator_is_refused_with_the_list():
    with pytest.raises(UsageError, match="float16, bfloat16, float32, float64"):
        Reduction(8, accumulate="int32")


def test_rules_say_their_numbers():
    expected = torch.full((8,), 2.0)
    assert for_dtype("float16").describe(scale_of(expected, EXACT)) == "atol=0.001 rtol=0.001"
    normalised = Normalised(1e-3)
    assert "RMS error up to 0.002" in normalised.describe(scale_of(expected, normalised))
    reduction = Reduction(4096)
    assert "sums of 4096 terms in float32" in reduction.describe(scale_of(expected, reduction))
    assert f"{8 * 64 * 2**-24 * 2:.4g}" in reduction.describe(scale_of(expected, reduction))


# --- normalised ------------------------------------------------------------------------------------------


@pytest.fixture
def output():
    return torch.randn(1 << 16, generator=torch.Generator().manual_seed(3))


def test_normalised_accepts_noise_below_its_bound(output):
    noise = torch.randn(len(output), generator=torch.Generator().manual_seed(4))
    found = compare(output + 0.9e-3 * noise, output, Normalised(1e-3))
    assert found.passed
    assert 0.5 < found.error_over_tolerance <= 1


def test_normalised_rejects_drift_that_no_element_shows(output):
    found = compare(output + 3e-3, output, Normalised(1e-3))
    assert found.mismatched == 0
    assert not found.passed
    assert found.message == "RMS error 0.003, allowed 0.0009976"
    assert found.error_over_tolerance == pytest.approx(3e-3 / 0.9976e-3, rel=1e-3)


def test_normalised_rejects_a_few_outliers_that_the_mean_hides(output):
    wrong = output.clone()
    wrong[[5, 77]] += 0.05
    drift = (wrong - output).square().mean().sqrt()
    assert drift < 1e-3 * output.square().mean().sqrt()
    found = compare(wrong, output, Normalised(1e-3))
    assert found.mismatched == 2
    assert not found.passed


@pytest.mark.parametrize("factor", [1e300, 1e-300])
def test_normalised_holds_at_any_magnitude(output, factor):
    expected = output.double() * factor
    assert compare(expected * (1 + 5e-4), expected, Normalised(1e-3)).passed
    assert not compare(expected * (1 + 5e-3), expected, Normalised(1e-3)).passed


def test_normalised_of_an_output_of_zeros_is_exact():
    zeros = torch.zeros(16)
    assert compare(zeros, zeros, Normalised(1e-3)).passed
    assert not compare(zeros + 1e-30, zeros, Normalised(1e-3)).passed


# --- reductions --------------------------------------------------------------------------------------------


def _round_to_ten_bits(values):
    """Round float32 to the 10 bits of fraction that TF32 has, to nearest, ties to even."""
    words = values.view(torch.int32)
    return ((words + 0x0FFF + ((words >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def _one_by_one(a, b):
    """Multiply matrices with each sum taken term by term in float32: the least accurate honest order."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total += a[:, k, None] * b[None, k]
    return total


def _gemm(data):
    random = torch.Generator().manual_seed(7)
    a, b = torch.randn(48, 4096, generator=random), torch.randn(4096, 48, generator=random)
    if data == "one sign":
        a, b = a.abs(), b.abs()
    if data == "one factor off zero":
        a = a + 0.5
    return a, b, (a.double() @ b.double()).float()


@pytest.mark.spec("T24")
@pytest.mark.parametrize("multiply", [torch.matmul, _one_by_one])
@pytest.mark.parametrize("data", ["zero mean", "one factor off zero", "one sign"])
def test_an_honest_float32_product_of_length_4096_passes(data, multiply):
    a, b, expected = _gemm(data)
    found = compare(multiply(a, b), expected, Reduction(4096))
    assert found.passed, found
    assert found.error_over_tolerance < 0.5


def test_the_plain_table_would_fail_that_honest_product():
    a, b, expected = _gemm("zero mean")
    assert not compare(_one_by_one(a, b), expected, for_dtype(torch.float32)).passed


@pytest.mark.spec("T24")
@pytest.mark.parametrize(
    "corrupt",
    [_round_to_ten_bits, lambda t: t.half().float(), lambda t: t.bfloat16().float()],
    ids=["tf32", "float16", "bfloat16"],
)
@pytest.mark.parametrize("data", ["zero mean", "one factor off zero"])
def test_less_than_float32_inside_fails_where_float32_was_asked(data, corrupt):
    a, b, expected = _gemm(data)
    found = compare(corrupt(a) @ corrupt(b), expected, Reduction(4096))
    assert not found.passed
    assert found.error_over_tolerance > 2


def test_a_half_precision_accumulator_fails_where_float32_was_asked():
    random = torch.Generator().manual_seed(9)
    a, b = torch.randn(16, 1024, generator=random), torch.randn(1024, 16, generator=random)
    expected = (a.double() @ b.double()).half()
    total = torch.zeros(16, 16, dtype=torch.float16)
    for k in range(1024):
        total = (total.float() + a[:, k, None] * b[None, k]).half()
    assert not compare(total, expected, Reduction(1024)).passed
    assert compare(total, expected, Reduction(1024, accumulate="float16")).passed
    assert compare((a @ b).half(), expected, Reduction(1024)).passed


@pytest.mark.parametrize("dtype", FLOAT8)
def test_neighbours_of_an_8_bit_output_pass(dtype):
    values = _float8_values(dtype)
    assert compare(values[1:], values[:-1], Reduction(16)).passed


@pytest.mark.parametrize("length", [1, 2, 16, 65536])
def test_short_and_long_sums_of_honest_products_pass(length):
    random = torch.Generator().manual_seed(length)
    a, b = torch.randn(4, length, generator=random), torch.randn(length, 4, generator=random)
    assert compare(a @ b, (a.double() @ b.double()).float(), Reduction(length)).passed


# --- who decides: by what, and that every way in gets the same answer --------------------------------------


def policy(dtype: object, form: Form = Form.WHOLE, **said: Tolerances) -> Ruling:
    return Policy(form, **said).for_dtype(dtype)


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
    file = Tolerances(rule=Reduction(4096), source="reference.py")
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
        ({"figure": 0.1, "atol": 0.1}, "excludes"),
        ({"rule": Reduction(8), "rtol": 0.1}, "excludes Reduction"),
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
        for rules in (Policy(asked=said), Policy(file=said), Policy(Form.ELEMENTS, file=said),
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
