"""Errors of use are found before anything runs."""

from __future__ import annotations

import pytest

from kernelmark.errors import UsageError
from kernelmark.harness import Case, Implementation, Runner, Unavailable


def refuse(*_: object) -> None:
    raise AssertionError("nothing may run")


@pytest.mark.spec("T9")
def test_a_subclass_a_wrapper_a_class_and_another_op_are_refused_by_name(scale_case: Case) -> None:
    from toy_ops import AddOp, ScaleOp

    class Faster(ScaleOp): ...

    for wrong, words in (
        (Faster(2.0), "Faster, a subclass"),
        (lambda x: x, "function.*binder"),
        (ScaleOp, "the class ScaleOp itself"),
        (AddOp(), "AddOp"),
    ):
        with pytest.raises(UsageError, match=words):
            Runner(wrong, scale_case)


def test_a_runner_takes_a_case_and_nothing_else(scale_case: Case) -> None:
    from toy_ops import ScaleOp

    with pytest.raises(UsageError, match="needs a Case"):
        Runner(ScaleOp(2.0), scale_case.id)  # type: ignore[arg-type]


@pytest.mark.spec("T10")
def test_the_name_of_the_librarys_own_op_is_reserved(scale: Runner) -> None:
    with pytest.raises(UsageError, match="'toy' is reserved"):
        scale.compare({"toy": refuse})


@pytest.mark.spec("T10")
@pytest.mark.parametrize("name", ["", "  ", 3, None])
def test_a_name_is_text(scale: Runner, name: object) -> None:
    with pytest.raises(UsageError, match="name must be text"):
        scale.compare({name: refuse})


@pytest.mark.parametrize("wrong", [[len], (len,), {len}])
def test_a_sequence_of_implementations_has_no_names(scale: Runner, wrong: object) -> None:
    with pytest.raises(UsageError, match="takes a mapping"):
        scale.compare(wrong)


def test_what_cannot_be_run_is_refused_by_name(scale: Runner) -> None:
    with pytest.raises(UsageError, match="implementation 'x' must be a callable"):
        scale.compare({"x": 3})


@pytest.mark.spec("T12")
@pytest.mark.parametrize("reason", ["", "   "])
def test_a_blank_reason_is_refused(reason: str) -> None:
    with pytest.raises(UsageError, match="noncomparable_reason must say why"):
        Implementation(run=refuse, noncomparable_reason=reason)


@pytest.mark.spec("T12")
def test_the_op_itself_cannot_be_noncomparable(scale_case: Case) -> None:
    from toy_ops import ScaleOp

    scale_case.binder = lambda op, case: Implementation(run=op, noncomparable_reason="rounds otherwise")
    with pytest.raises(UsageError, match="cannot have a noncomparable_reason"):
        Runner(ScaleOp(2.0), scale_case).compare({"x": refuse})


@pytest.mark.spec("T11")
@pytest.mark.parametrize(
    "wrong", [{"args": [1]}, {"args": 3}, {"reset": 4}, {"run": 3}, {"owned_outputs": [1]}]
)
def test_an_implementation_says_which_argument_is_wrong(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Implementation(**{"run": refuse, **wrong})  # type: ignore[arg-type]


def test_unavailable_needs_a_reason() -> None:
    with pytest.raises(UsageError, match="needs a reason"):
        Unavailable(" ")
