import pytest
import torch

from kernelmark.errors import UsageError
from kernelmark.records import ControlResult
from kernelmark.verify import run_controls, vacuous
from kernelmark.verify.declarations import (
    Custom,
    Exact,
    Noncomparable,
    Partial,
    ReferenceInfeasible,
    Unestablished,
)
from kernelmark.verify.tolerance import Elementwise, Normalised, Reduction

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.int8,
    torch.uint8,
    torch.int64,
    torch.bool,
]


def _random(*shape, seed=2):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _passed(results):
    return [r.control for r in results if r.applied and not r.caught]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sound_check_catches_every_control(dtype, device):
    y, x = 3 * _random(6, 7), 3 * _random(6, 7, seed=4)
    y, x = (y > 0, x > 0) if dtype == torch.bool else (y.to(dtype), x.to(dtype))
    y, x = y.to(device), x.to(device)
    results = run_controls(y, (x,), Exact())
    assert [r.control for r in results] == [
        "zeros as output",
        "the mean everywhere in output",
        "output shuffled",
        "output with its second half zero",
        "output with one wrong element",
        "input[0] as output",
    ]
    assert all(r.applied and r.caught for r in results)
    assert vacuous(results) == ""


@pytest.mark.parametrize("rule", [Normalised(1e-3), Reduction(4096), Elementwise(0, 1e-2)])
def test_the_wide_rules_catch_every_control_of_an_ordinary_output(rule):
    results = run_controls(64 * _random(64, 64), (), Exact(rule))
    assert len(results) == 5
    assert all(r.applied and r.caught for r in results)


def test_an_output_smaller_than_its_tolerance_shows_the_check_to_be_vacuous():
    y = 1e-4 * _random(32).half()
    results = run_controls(y, {"x": torch.zeros(32).half()}, Exact())
    assert _passed(results) == [
        "zeros as output",
        "the mean everywhere in output",
        "output shuffled",
        "output with its second half zero",
        "input['x'] as output",
    ]
    assert vacuous(results).startswith("the check is vacuous: it also passes zeros as output,")


def test_an_input_that_passes_for_the_output_is_found():
    x = _random(64).bfloat16()
    y = (x.float() * (1 + 1e-2)).bfloat16()
    assert _passed(run_controls(y, {"x": x}, Exact())) == ["input['x'] as output"]


def test_inputs_of_another_shape_or_dtype_are_no_controls():
    y = _random(8)
    names = [r.control for r in run_controls(y, (_random(4), y.double(), 3, [y + 1]), Exact())]
    assert [n for n in names if n.startswith("input")] == ["input[3][0] as output"]


def test_a_control_that_equals_the_answer_proves_nothing_and_says_so():
    results = {r.control: r for r in run_controls(torch.full((8,), 2.0), (torch.full((8,), 2.0),), Exact())}
    applied = {name for name, result in results.items() if result.applied}
    assert applied == {"zeros as output", "output with its second half zero", "output with one wrong element"}
    assert vacuous(tuple(results.values())) == ""


def test_answers_of_zeros_are_still_told_from_a_wrong_element():
    results = run_controls(torch.zeros(8), (), Exact())
    assert [r.control for r in results if r.applied] == ["output with one wrong element"]
    assert all(r.caught for r in results if r.applied)


def test_every_output_has_its_own_controls():
    big, small = _random(16), 1e-7 * _random(16)
    results = run_controls((big, {"lse": small}), (), Exact())
    assert {r.control for r in results if not r.caught} == {
        "zeros as output[1]['lse']",
        "the mean everywhere in output[1]['lse']",
        "output[1]['lse'] shuffled",
        "output[1]['lse'] with its second half zero",
    }


@pytest.mark.spec("T19")
def test_partial_tries_controls_on_checked_outputs_only():
    results = run_controls((_random(8), 1e-9 * _random(8)), (), Partial(1))
    assert results
    assert all("output[0]" in r.control and r.caught for r in results)


@pytest.mark.spec("T20")
@pytest.mark.parametrize("kind", [Unestablished, ReferenceInfeasible, Noncomparable])
def test_nothing_is_tried_where_nothing_is_checked(kind):
    results = run_controls(_random(8), (), kind("nobody knows"))
    assert results == ()
    assert vacuous(results) == ""


def test_a_custom_check_is_put_to_the_test_itself():
    def close(got, expected):
        torch.testing.assert_close(got, expected)

    outputs = (_random(8), [_random(4)])
    assert all(r.caught for r in run_controls(outputs, (_random(8, seed=9),), Custom(close, "torch's own")))
    results = run_controls(outputs, (), Custom(lambda got, expected: None, "nothing at all"))
    assert _passed(results) == [r.control for r in results if r.applied] != []
    assert vacuous(results)


def test_a_custom_check_that_looks_at_one_output_leaves_the_others_unproved():
    def first_only(got, expected):
        torch.testing.assert_close(got[0], expected[0])

    passed = _passed(run_controls((_random(8), _random(8)), (), Custom(first_only, "the first")))
    assert passed
    assert all("output[1]" in name for name in passed)


def test_a_custom_check_may_index_with_any_control():
    indices = torch.tensor([3, 9, 4, 7])
    values = torch.arange(10.0)

    def by_value(got, expected):
        assert int(got.min()) >= 0  # a negative index would wrap around, and one of 10 would raise
        assert torch.equal(values[got], values[expected])

    far = torch.tensor([3, 1000, 4, 7])
    results = run_controls(indices, (far, torch.tensor([4, 4, 9, 9])), Custom(by_value, "by value"))
    assert [r.control for r in results if "input" in r.control] == ["input[1] as output"]
    assert all(r.caught for r in results)


def _seen_by_custom(expected, inputs=()):
    seen = []

    def check(got, expected):
        seen.append(got)
        raise AssertionError

    assert all(r.caught for r in run_controls(expected, inputs, Custom(check, "never content")) if r.applied)
    return seen


def test_integers_that_a_custom_check_sees_stay_within_the_range_of_the_answer():
    for got in _seen_by_custom(torch.tensor([3, 0, 9, 4]), (torch.tensor([10, 0, 0, 0]),)):
        assert int(got.min()) >= 0
        assert int(got.max()) <= 9


@pytest.mark.parametrize("value", [60000.0, -60000.0])
def test_floats_that_a_custom_check_sees_are_finite_where_the_answer_is(value):
    seen = _seen_by_custom(torch.tensor([value, 1.0, value, 3.0]).half())
    assert len(seen) == 5
    assert all(bool(got.isfinite().all()) for got in seen)


def test_the_mean_is_that_of_the_finite_elements():
    _, mean, *_ = _seen_by_custom(torch.tensor([1.0, float("inf"), 3.0, float("nan")]))
    assert mean.tolist() == [2, 2, 2, 2]


def test_a_custom_check_that_returns_something_is_an_error_of_use():
    with pytest.raises(UsageError, match="must raise AssertionError"):
        run_controls(_random(4), (), Custom(lambda got, expected: False, "by hand"))


def test_an_empty_output_proves_nothing():
    results = run_controls(torch.zeros(0), (), Exact())
    assert [r.applied for r in results] == [False]
    assert "no wrong answer could be made" in vacuous(results)


def test_numbers_that_are_no_tensors_have_controls_too():
    results = run_controls((0.5, 7, True), (), Exact())
    assert {r.control.rsplit("output")[-1][:3] for r in results if r.applied} == {"[0]", "[1]", "[2]"}
    assert all(r.caught for r in results if r.applied)


@pytest.mark.parametrize("value", [60000.0, -60000.0])
def test_one_wrong_element_stays_within_the_dtype(value):
    (one_wrong,) = [
        r
        for r in run_controls(torch.full((4,), value).half(), (), Exact())
        if r.control == "output with one wrong element"
    ]
    assert one_wrong.applied
    assert one_wrong.caught


def test_answers_that_hold_no_finite_number_are_handled():
    y = torch.tensor([float("nan"), float("inf"), float("-inf"), float("nan")])
    assert all(r.caught for r in run_controls(y, (), Exact()) if r.applied)


def test_packed_formats_have_controls():
    packed = torch.arange(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    results = run_controls(packed, (), Exact())
    assert all(r.applied and r.caught for r in results)


def test_the_answer_itself_is_not_touched():
    y, x = _random(5, 6).t(), _random(6, 5)
    before = (y.clone(), x.clone())
    run_controls({"y": y}, {"x": x}, Exact())
    assert torch.equal(y, before[0])
    assert torch.equal(x, before[1])


def test_a_conjugate_answer_has_controls_of_what_it_shows():
    y = torch.complex(_random(6), _random(6, seed=3)).conj()
    assert all(r.applied and r.caught for r in run_controls(y, (y.conj(),), Exact()))


def test_the_sentence_names_what_passed():
    results = (
        ControlResult(control="zeros as output", applied=True, caught=False),
        ControlResult(control="output shuffled", applied=True, caught=True),
        ControlResult(control="x as output", applied=False, caught=False),
    )
    assert vacuous(results) == "the check is vacuous: it also passes zeros as output"
