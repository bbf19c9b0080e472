import math

import pytest
import torch

from kernelmark.errors import UsageError
from kernelmark.verify.numerics import compare, scale_of
from kernelmark.verify.tolerance import EXACT, Elementwise, Normalised, OutputScale, Reduction, for_dtype

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
