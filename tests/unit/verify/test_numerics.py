import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from kernelmark.verify.memory import piece_size
from kernelmark.verify.numerics import allowance, compare, scale_of
from kernelmark.verify.tolerance import EXACT, Elementwise, Normalised, Reduction, for_dtype

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
NAN, INF = math.nan, math.inf


def _naive(got, expected, atol, rtol):
    """What numpy says, element by element, in double precision."""
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        finite = np.isfinite(got) & np.isfinite(expected)
        error = np.where(finite, np.abs(got - expected), 0.0)
        near = finite & (error <= atol + rtol * np.abs(expected))
    stray = ~same & ~finite
    return ~(same | near), error, stray


@st.composite
def _arrays(draw):
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, max_side=6))
    values = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, 2**-10])
    expected = draw(hnp.arrays(np.float32, shape, elements=values))
    kind = draw(st.sampled_from(["same", "near", "other"]))
    if kind == "other":
        return draw(hnp.arrays(np.float32, shape, elements=values)), expected
    got = expected.copy()
    if kind == "near":
        with np.errstate(all="ignore"):
            got = got + draw(hnp.arrays(np.float32, shape, elements=st.floats(-(2**-9), 2**-9, width=32)))
    return np.asarray(got, np.float32), expected


@given(_arrays(), st.sampled_from([0.0, 1e-3, 1e-2]), st.sampled_from([0.0, 1e-3, 0.5]))
def test_comparison_agrees_with_a_naive_one(arrays, atol, rtol):
    got, expected = arrays
    found = compare(torch.from_numpy(got), torch.from_numpy(expected), Elementwise(atol, rtol))
    off, error, stray = _naive(got, expected, atol, rtol)
    assert found.total == expected.size
    assert found.mismatched == off.sum()
    assert found.passed == (not off.any())
    assert found.max_abs_error == (INF if stray.any() else error.max())
    assert (found.error_over_tolerance <= 1) == found.passed
    if off.any():
        assert off[found.worst_index]
    if stray.any():
        assert stray[found.worst_index]


@given(st.data())
def test_splitting_into_pieces_changes_nothing(data):
    shape = data.draw(hnp.array_shapes(max_dims=3, max_side=5))
    values = st.floats(width=32)
    got, expected = (
        torch.from_numpy(data.draw(hnp.arrays(np.float32, shape, elements=values))) for _ in "ab"
    )
    whole = compare(got, expected, for_dtype(torch.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernelmark.verify.memory._PIECE", {"cpu": data.draw(st.integers(1, 30))})
        assert compare(got, expected, for_dtype(torch.float32)) == whole


@pytest.mark.spec("T24")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("device", DEVICES)
def test_non_finite_values_must_be_the_same_in_the_same_place(dtype, device):
    expected = torch.tensor([1.0, NAN, INF, -INF, 0.0], dtype=dtype, device=device)
    rule = for_dtype(dtype)
    assert compare(expected.clone(), expected, rule).passed
    for index, value in [(0, NAN), (0, INF), (1, 1.0), (1, INF), (2, -INF), (2, NAN), (2, 3.0), (4, NAN)]:
        got = expected.clone()
        got[index] = value
        found = compare(got, expected, rule)
        assert (found.passed, found.mismatched, found.worst_index) == (False, 1, (index,))
        assert found.max_abs_error == found.error_over_tolerance == INF


def test_a_value_out_of_place_is_worse_than_any_error():
    expected = torch.zeros(4)
    found = compare(torch.tensor([1e30, 0, NAN, 3e38]), expected, for_dtype(torch.float32))
    assert found.worst_index == (2,)
    assert (found.got, found.expected) == ("nan", "0")
    assert found.mismatched == 3


def test_it_is_worse_also_where_nothing_may_differ_and_it_comes_in_a_later_piece(monkeypatch):
    monkeypatch.setattr("kernelmark.verify.memory._PIECE", {"cpu": 1})
    found = compare(torch.tensor([1e30, NAN, 2e30]), torch.zeros(3), EXACT)
    assert found.worst_index == (1,)
    assert compare(torch.tensor([1e29, 1e30]), torch.zeros(2), EXACT).worst_index == (1,)


@given(hnp.arrays(np.float64, st.integers(1, 12), elements=st.floats(-1e6, 1e6)), st.integers(1, 5))
def test_the_root_mean_square_is_the_same_in_pieces(values, piece):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernelmark.verify.memory._PIECE", {"cpu": piece})
        rms = scale_of(torch.from_numpy(values), Normalised(1e-3)).rms
    largest = np.abs(values).max()
    wanted = largest * np.sqrt(np.mean((values / largest) ** 2)) if largest else 0.0
    assert rms == pytest.approx(wanted, rel=1e-12)


def test_the_root_mean_square_leaves_out_what_is_not_finite():
    assert scale_of(torch.tensor([3.0, INF, NAN, -4.0]), Normalised(1)).rms == pytest.approx(12.5**0.5)


def test_the_worst_element_is_the_one_furthest_beyond_what_is_allowed_there():
    expected = torch.tensor([[1000.0, 1.0], [0.0, 0.0]])
    got = expected + torch.tensor([[0.5, 0.01], [0.0, 0.0]])
    found = compare(got, expected, Elementwise(1e-3, 1e-3))
    assert found.max_abs_error == 0.5
    assert found.worst_index == (0, 1)
    assert found.mismatched == 1
    assert found.error_over_tolerance == pytest.approx(0.01 / 2e-3, rel=1e-4)
    assert found.max_rel_error == pytest.approx(0.01, rel=1e-4)
    assert (found.expected, found.got) == ("1", "1.00999999")


def test_an_error_of_exactly_what_is_allowed_passes():
    expected = torch.tensor([2.0], dtype=torch.float64)
    assert compare(expected + 0.5, expected, Elementwise(0.5, 0)).error_over_tolerance == 1
    assert compare(expected + 0.5, expected, Elementwise(0.5, 0)).passed
    assert not compare(expected + 0.5000001, expected, Elementwise(0.5, 0)).passed


def test_relative_error_leaves_out_expected_zeros():
    found = compare(torch.tensor([1e-6]), torch.tensor([0.0]), for_dtype(torch.float32))
    assert found.max_rel_error is None
    assert found.max_abs_error == pytest.approx(1e-6)


def test_a_difference_too_large_for_a_double_is_no_match():
    expected = torch.tensor([-1.7e308], dtype=torch.float64)
    assert not compare(-expected, expected, Elementwise(1.0, 1e308)).passed


@pytest.mark.spec("T24")
@pytest.mark.parametrize("device", DEVICES)
def test_large_integers_are_compared_without_rounding(device):
    big = torch.tensor([2**62, 2**53, -(2**63), 0], device=device)
    assert compare(big.clone(), big, EXACT).passed
    found = compare(big + torch.tensor([1, 1, 0, 0], device=device), big, EXACT)
    assert found.mismatched == 2
    assert found.max_abs_error == 1
    assert (found.expected, found.got) == (str(2**62), str(2**62 + 1))


def test_integer_differences_do_not_wrap_around():
    top, bottom = torch.tensor([2**63 - 1]), torch.tensor([-(2**63)])
    assert compare(top, bottom, EXACT).max_abs_error == pytest.approx(2.0**64)
    assert not compare(top, bottom, Elementwise(1.0, 0.0)).passed


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_integers_keep_their_order_and_distance(dtype):
    top = torch.iinfo(dtype).max
    got, expected = torch.tensor([0, top], dtype=dtype), torch.tensor([0, top - 2], dtype=dtype)
    found = compare(got, expected, EXACT)
    assert (found.mismatched, found.worst_index, found.max_abs_error) == (1, (1,), 2)
    assert found.max_rel_error == pytest.approx(2 / (top - 2))
    assert (found.got, found.expected) == (str(top), str(top - 2))
    assert compare(got, expected, Elementwise(2, 0)).passed


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32])
def test_integers_take_a_tolerance_where_one_is_given(dtype):
    expected = torch.tensor([-128, 5, 127], dtype=dtype)
    got = torch.tensor([-127, 5, 126], dtype=dtype)
    assert compare(got, expected, Elementwise(1, 0)).passed
    assert compare(got, expected, EXACT).mismatched == 2


def test_booleans_are_exact():
    found = compare(torch.tensor([True, False]), torch.tensor([True, True]), for_dtype(torch.bool))
    assert (found.passed, found.worst_index, found.got, found.tolerance) == (False, (1,), "False", "exact")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("device", DEVICES)
def test_complex_errors_are_distances_and_parts_have_their_own_place(dtype, device):
    expected = torch.tensor([3 + 4j, complex(INF, 1), complex(NAN, NAN)], dtype=dtype, device=device)
    rule = Elementwise(0.1, 0.1)
    assert compare(expected.clone(), expected, rule).passed
    near = expected + torch.tensor([0.3 + 0.4j, 0, 0], dtype=dtype, device=device)
    found = compare(near, expected, rule)
    assert found.passed
    assert found.max_abs_error == pytest.approx(0.5)
    assert found.error_over_tolerance == pytest.approx(0.5 / 0.6)
    for wrong in (complex(1, INF), complex(-INF, 1), complex(INF, 5), complex(INF, NAN)):
        got = expected.clone()
        got[1] = wrong
        assert compare(got, expected, rule).mismatched == 1


def test_a_pending_conjugation_is_carried_out_before_comparing():
    value = torch.tensor([1 + 2j])
    assert compare(value.conj(), torch.tensor([1 - 2j]), EXACT).passed
    assert not compare(value.conj(), value, for_dtype(torch.complex64)).passed


def test_packed_formats_are_compared_as_bytes():
    words = torch.tensor([0x12, 0x34], dtype=torch.uint8)
    packed = words.view(torch.float4_e2m1fn_x2)
    assert compare(packed, packed, for_dtype(packed.dtype)).passed
    found = compare(torch.tensor([0x12, 0x35], dtype=torch.uint8).view(packed.dtype), packed, EXACT)
    assert (found.mismatched, found.worst_index, found.expected, found.got) == (1, (1,), "0x34", "0x35")


@pytest.mark.parametrize("number", [True, 7, 2**80, 0.5, 1 + 2j])
def test_python_numbers_are_compared_as_they_are(number):
    rule = for_dtype("float64") if isinstance(number, float | complex) else EXACT
    assert compare(number, number, rule).passed
    found = compare(type(number)(not number) if isinstance(number, bool) else number + 1, number, rule)
    assert not found.passed
    assert found.total == found.mismatched == 1
    assert found.worst_index == ()


def test_an_empty_output_has_no_worst_element():
    found = compare(torch.zeros(0, 3), torch.zeros(0, 3), for_dtype(torch.float32))
    assert found.passed
    assert (found.total, found.worst_index, found.max_abs_error) == (0, None, None)


def test_strides_do_not_matter_and_gradients_are_left_alone():
    base = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    got = base.t().contiguous().t().requires_grad_()
    assert compare(got, base, EXACT).passed
    assert got.grad is None
    wrong = base.clone()
    wrong[4, 1] += 1
    assert compare(wrong.t().contiguous().t(), base, EXACT).worst_index == (4, 1)


@pytest.mark.parametrize("device", DEVICES)
def test_the_worst_index_is_found_in_a_later_piece(device):
    count = 2 * piece_size(torch.device(device)) + 1000
    expected = torch.zeros(4, count // 4, dtype=torch.float16, device=device)
    got = expected.clone()
    got[0, 3], got[3, 11] = 0.25, 0.5
    found = compare(got, expected, for_dtype(torch.float16))
    assert (found.worst_index, found.mismatched, found.got) == ((3, 11), 2, "0.5")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_values_are_written_with_digits_that_tell_neighbours_apart(dtype):
    one = torch.ones(1, dtype=dtype)
    neighbour = one + torch.finfo(dtype).eps
    found = compare(neighbour, one, EXACT)
    assert found.got != found.expected
    assert torch.tensor(float(found.got), dtype=dtype) == neighbour


class _LargestMade(TorchDispatchMode):
    """Notes the largest tensor that any operation makes anew."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        old = {t.untyped_storage().data_ptr() for t in tree_flatten(args)[0] if isinstance(t, torch.Tensor)}
        if isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in old:
            self.elements = max(self.elements, result.untyped_storage().nbytes() // result.element_size())
        return result


@pytest.mark.parametrize("rule", [EXACT, Normalised(1e-3), Reduction(64)])
@pytest.mark.parametrize("strides", ["dense", "transposed", "expanded"])
def test_no_copy_of_a_large_output_is_made(rule, strides, monkeypatch):
    got = torch.randn(8, 1 << 14, generator=torch.Generator().manual_seed(1)).half()
    if strides == "transposed":
        got = got.t()
    if strides == "expanded":
        got = got[:1].expand(8, -1)
    piece = 1 << 12
    monkeypatch.setattr("kernelmark.verify.memory._PIECE", {"cpu": piece})
    with _LargestMade() as made:
        compare(got, got, rule)
    assert 0 < made.elements <= piece


def test_the_allowance_is_that_of_the_element():
    expected = torch.tensor([[1.0, 10.0], [100.0, -NAN]])
    assert allowance(expected, 1, Elementwise(1e-3, 1e-2)) == pytest.approx(0.101)
    assert allowance(expected, 3, Elementwise(1e-3, 1e-2)) == pytest.approx(1e-3)
