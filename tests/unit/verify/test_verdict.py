import pytest
import torch

from kernelmark.errors import UsageError
from kernelmark.records import Check, ControlResult
from kernelmark.verify import check_outputs, run_controls, vacuous
from kernelmark.verify.declarations import (
    Custom,
    Exact,
    Noncomparable,
    Partial,
    ReferenceInfeasible,
    Unestablished,
)
from kernelmark.verify.tolerance import Elementwise, Normalised, Reduction

Y = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
INDICES = torch.tensor([0, 3])


def _off(tensor, index, by):
    wrong = tensor.clone()
    wrong[index] += by
    return wrong


@pytest.mark.spec("T19")
def test_exact_checks_every_output():
    expected = (Y, {"z": Y, "i": INDICES})
    assert check_outputs(expected, expected, Exact()).check is Check.VERIFIED
    for wrong in (
        (_off(Y, (0, 1), 1), {"z": Y, "i": INDICES}),
        (Y, {"z": _off(Y, (1, 0), 1), "i": INDICES}),
        (Y, {"z": Y, "i": _off(INDICES, 1, 1)}),
    ):
        verdict = check_outputs(wrong, expected, Exact())
        assert not verdict.passed
        assert verdict.check is Check.FAILED
        assert [o.passed for o in verdict.outputs].count(False) == 1
        assert len(verdict.outputs) == 3


@pytest.mark.spec("T18", "T24")
def test_a_failure_says_which_output_where_what_how_many_and_against_which_tolerance():
    verdict = check_outputs((Y, _off(INDICES, 1, -2)), (_off(Y, (1, 0), 0.5), INDICES), Exact())
    assert verdict.message.splitlines() == [
        "2 of 2 outputs are off",
        "output[0] (float32, 2×2): 1 of 4 elements are off",
        "  worst at [1, 0]: expected 3.5, got 3",
        "  error 0.5000, allowed 4.500e-05 (11111 times as much)",
        "  tolerance: atol=1e-05 rtol=1e-05 (each element, by its dtype float32)",
        "output[1] (int64, 2): 1 of 2 elements are off",
        "  worst at [1]: expected 3, got 1",
        "  error 2.000, allowed none",
        "  tolerance: exact (by its dtype int64)",
    ]


@pytest.mark.spec("T24")
def test_a_value_that_is_no_number_is_reported_as_such():
    verdict = check_outputs(_off(Y, (0, 0), float("nan")), Y, Exact())
    assert "worst at [0, 0]: expected 1, got nan" in verdict.message
    assert "no finite number" in verdict.message


@pytest.mark.spec("T24")
def test_a_structural_failure_shows_both_structures_and_compares_nothing():
    verdict = check_outputs((Y.unsqueeze(-1), None), (Y, INDICES), Exact())
    assert verdict.message.splitlines() == [
        "output[0] has shape (2, 2, 1), expected (2, 2)",
        "output[1] is None, expected a tensor",
        "  expected: (float32[2, 2] cpu, int64[2] cpu)",
        "  got:      (float32[2, 2, 1] cpu, None)",
    ]
    assert [(o.output, o.tolerance, o.max_abs_error, o.mismatched) for o in verdict.outputs] == [
        ("output[0]", "structure", None, 4),
        ("output[1]", "structure", None, 2),
    ]
    assert all(o.message for o in verdict.outputs)


def test_a_report_of_many_failures_is_cut_short():
    expected = [torch.zeros(1)] * 50
    verdict = check_outputs([torch.ones(1)] * 50, expected, Exact())
    assert len(verdict.outputs) == 50
    assert verdict.message.count("worst at") == 8
    assert verdict.message.endswith("and 42 more")


@pytest.mark.spec("T24")
@pytest.mark.parametrize("nothing", [(), None, []])
def test_zero_outputs_do_not_pass(nothing):
    for declaration in (Exact(), Custom(lambda got, expected: None, "by hand")):
        verdict = check_outputs(nothing, nothing, declaration)
        assert not verdict.passed
        assert "nothing to compare" in verdict.message


@pytest.mark.spec("T19")
def test_partial_checks_the_first_outputs_and_names_the_others():
    verdict = check_outputs((Y, Y + 1, "scratch"), (Y, Y, INDICES), Partial(1))
    assert (verdict.passed, verdict.check) == (True, Check.PARTIAL)
    assert verdict.note == "not checked: output[1], output[2]"
    assert len(verdict.outputs) == 1
    assert not check_outputs((Y + 1, Y, INDICES), (Y, Y, INDICES), Partial(1)).passed
    assert not check_outputs((Y, Y + 1, INDICES), (Y, Y, INDICES), Partial(2)).passed


@pytest.mark.spec("T19")
def test_partial_beyond_the_outputs_fails_and_says_how_many_there_are():
    verdict = check_outputs((Y,), (Y,), Partial(2))
    assert not verdict.passed
    assert "first 2 outputs, and the reference gives 1" in verdict.message


@pytest.mark.spec("T19")
def test_custom_calls_the_cases_own_assertion_with_both_answers():
    seen = []

    def check(got, expected):
        seen.append((got, expected))

    verdict = check_outputs((Y,), (Y + 1,), Custom(check, "only the shape"))
    assert (verdict.passed, verdict.check, verdict.note) == (True, Check.CUSTOM, "only the shape")
    assert torch.equal(seen[0][0][0], Y)
    assert torch.equal(seen[0][1][0], Y + 1)


@pytest.mark.spec("T19")
def test_a_custom_assertion_fails_with_its_own_words():
    def check(got, expected):
        assert torch.equal(got, expected), "rows are not sorted"

    verdict = check_outputs(Y + 1, Y, Custom(check, "sorted rows"))
    assert not verdict.passed
    assert "sorted rows" in verdict.message
    assert "rows are not sorted" in verdict.message


def test_a_custom_assertion_of_torch_fails_too():
    verdict = check_outputs(Y + 1, Y, Custom(torch.testing.assert_close, "torch's own"))
    assert "Mismatched elements: 4 / 4" in verdict.message


def test_a_custom_check_that_breaks_has_not_passed():
    def check(got, expected):
        raise KeyError("scale")

    verdict = check_outputs(Y, Y, Custom(check, "by scale"))
    assert not verdict.passed
    assert "KeyError: 'scale'" in verdict.message
    assert "broken" in verdict.message


@pytest.mark.parametrize("answer", [True, False, 0, Y])
def test_a_custom_check_that_returns_something_is_an_error_of_use(answer):
    with pytest.raises(UsageError, match="must raise AssertionError"):
        check_outputs(Y, Y, Custom(lambda got, expected: answer, "by hand"))


@pytest.mark.spec("T24")
def test_a_custom_check_cannot_broadcast_because_structure_comes_first():
    def check(got, expected):
        assert bool((got - expected).abs().max() < 1)

    assert not check_outputs(torch.zeros(3, 1), torch.zeros(3), Custom(check, "difference")).passed


@pytest.mark.spec("T20")
@pytest.mark.parametrize("kind", [Unestablished, ReferenceInfeasible, Noncomparable])
def test_nothing_is_compared_where_nothing_is_established(kind):
    verdict = check_outputs(object(), None, kind("nobody knows"))
    assert (verdict.passed, verdict.note, verdict.outputs) == (True, "nobody knows", ())
    assert not verdict.check.comparable


def test_what_is_no_declaration_is_refused():
    with pytest.raises(UsageError, match="one of Exact"):
        check_outputs(Y, Y, "exact")  # type: ignore[arg-type]


# --- which tolerance applies ---------------------------------------------------------------------------


def _tolerances(expected, tolerance):
    return [o.tolerance for o in check_outputs(expected, expected, Exact(tolerance)).outputs]


@pytest.mark.spec("T24")
def test_each_output_takes_the_rule_of_its_own_dtype():
    expected = (Y, Y.half(), Y.bfloat16(), Y.double(), INDICES, Y > 2, 1, 2.5)
    assert _tolerances(expected, None) == [
        "atol=1e-05 rtol=1e-05",
        "atol=0.001 rtol=0.001",
        "atol=0.016 rtol=0.016",
        "atol=1e-07 rtol=1e-07",
        "exact",
        "exact",
        "exact",
        "atol=1e-07 rtol=1e-07",
    ]


def test_one_rule_for_all_leaves_integers_exact():
    loose = Elementwise(1.0, 0.0)
    assert _tolerances((Y, INDICES, 3, 2.5), loose) == ["atol=1 rtol=0", "exact", "exact", "atol=1 rtol=0"]
    assert not check_outputs((Y, INDICES + 1), (Y, INDICES), Exact(loose)).passed


@pytest.mark.parametrize("key", [1, "output[1]"])
def test_a_rule_may_name_an_output_and_the_others_keep_the_table(key):
    assert _tolerances((Y, INDICES), {key: Elementwise(1, 0)}) == ["atol=1e-05 rtol=1e-05", "atol=1 rtol=0"]
    assert check_outputs((Y, INDICES + 1), (Y, INDICES), Exact({key: Elementwise(1, 0)})).passed


def test_a_rule_may_name_an_output_by_its_key_or_the_only_one_by_position():
    assert _tolerances({"y": Y, "z": (Y, Y)}, {"z": Elementwise(1, 0)}) == [
        "atol=1e-05 rtol=1e-05",
        "atol=1 rtol=0",
        "atol=1 rtol=0",
    ]
    assert _tolerances(Y, {0: Elementwise(1, 0)}) == _tolerances(Y, {"output": Elementwise(1, 0)})


def test_a_rule_for_an_output_that_is_not_there_is_an_error_of_use():
    with pytest.raises(UsageError, match=r"'lse', and the checked outputs are output\[0\], output\[1\]"):
        check_outputs((Y, Y), (Y, Y), Exact({"lse": Elementwise(1, 0)}))


# --- negative controls ----------------------------------------------------------------------------------

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


def test_a_control_that_a_custom_check_answers_is_an_error_of_use():
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
