# ruff: noqa: E501 - a table of cases reads best with one case a line
from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmark.manifest.rows import typed

OP = "ops.BmmFwdOp.workloads"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("label: plain", "label: llama3-8b-scores", f"34: {OP}.1.label: label 'llama3-8b-scores' is taken by the row on line 28"),
        ("{B: 2, M: 3,", "{B: 2, M: 3, H: 3,", f"36: {OP}.1.dims.H: 'H' is in no tensor's shape; dimensions: B, M, K, N"),
        ("{B: 2, M: 3,", "{B: 2, m: 3,", f"36: {OP}.1.dims.m: 'm' is in no tensor's shape; did you mean 'M'?"),
        ("{B: 2, M: 3,", "{B: 2, alpha: 3, M: 3,", f"36: {OP}.1.dims.alpha: 'alpha' is in no tensor's shape; it is a parameter, so it goes under 'params'"),
        ("{B: 2, M: 3, N: 5, K: 7}", "{B: 2, M: 3, N: 5}", f"36: {OP}.1.dims: dimension 'K' has no size; it is in the shape of a, b"),
        ("{T: float32, I: int32}", "{T: float32}", f"37: {OP}.1.dtypes.0: dtype variable I has no dtype in this case"),
        ("{T: float32, I: int32}", "{T: float32, i: int32}", f"37: {OP}.1.dtypes.0.i: 'i' is no dtype variable; did you mean 'I'?"),
        ("{T: float32, I: int32}", "{T: float32, I: int32}, {I: int32, T: float32}", f"37: {OP}.1.dtypes.1: this dtype case is in the row already"),
        ("{mode: exact, alpha: 0.5}", "{mode: exact, beta: 0.5}", f"38: {OP}.1.params.beta: 'beta' is no parameter"),
        ("{mode: exact, alpha: 0.5}", "{alpha: 0.5}", f"38: {OP}.1.params: parameter 'mode' has no default, so the row must give it"),
        ("{mode: exact, alpha: 0.5}", "{mode: slow}", f"38: {OP}.1.params.mode: 'slow' is not among the choices 'fast', 'exact'"),
        ("{mode: exact, alpha: 0.5}", "{mode: exact, alpha: x}", f"38: {OP}.1.params.alpha: expected float, got text 'x'"),
        ("{transpose_b: true,", "{transpose_b: yes,", f"32: {OP}.0.params.transpose_b: expected bool, got text 'yes'; write true or false"),
        ("with: [bias]", "with: [b]", f"33: {OP}.0.with.0: 'b' is no optional input; optional inputs: bias"),
        ("with: [bias]", "with: [bias, bias]", f"33: {OP}.0.with.1: 'bias' is given twice"),
    ],
)  # fmt: skip
def test_a_row_that_does_not_fit_its_op_is_named_with_its_place(
    spoiled: Callable[[str, str], list[str]], old: str, new: str, expected: str
) -> None:
    problems = spoiled(old, new)
    assert any(problem.startswith(f"gemm.yaml:{expected}") for problem in problems), problems


def test_a_row_without_dtypes_lacks_one_for_each_variable(spoiled: Callable[[str, str], list[str]]) -> None:
    assert any("T, I has no dtype" in p for p in spoiled("        dtypes: [{T: float32, I: int32}]\n", ""))


def test_a_dimension_that_only_an_absent_input_has_need_not_be_bound(
    spoiled: Callable[[str, str], list[str]],
) -> None:
    wider = "bias: {dtype: T, shape: [N, H], optional: true}"
    problems = spoiled("bias: {dtype: T, shape: [N], optional: true}", wider)
    expected = "dimension 'H' has no size; it is in the shape of bias"
    assert [expected in problem for problem in problems] == [
        True
    ]  # the first row gives bias, the second does not


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [(3, "int", 3), (3, "float", 3.0), (0.5, "float", 0.5), (True, "bool", True), ("x", "str", "x")],
)
def test_a_value_of_the_type_is_taken(value: object, kind: str, expected: object) -> None:
    found, problem = typed(value, kind)
    assert problem is None
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(True, "int"), (True, "float"), (1, "bool"), (3.0, "int"), ("3", "int"), (3, "str"), ("true", "bool")],
)
def test_a_value_of_another_type_is_never_converted(value: object, kind: str) -> None:
    assert typed(value, kind)[1] is not None
