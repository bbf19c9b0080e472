import pytest
import torch

from kernelmark.errors import UsageError
from kernelmark.records import Check
from kernelmark.verify import check_outputs
from kernelmark.verify.declarations import (
    Custom,
    Exact,
    Noncomparable,
    Partial,
    ReferenceInfeasible,
    Unestablished,
)
from kernelmark.verify.tolerance import Elementwise

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
