"""Errors that cross: the class and the fields arrive, and nothing of a worker's choosing is run."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark import errors
from kernelmark.errors import FileError, KernelmarkError, ModelLoweringError, VerificationError
from kernelmark.isolation import ForeignError, decode, encode
from kernelmark.isolation.failures import Failure
from tests.unit.isolation import targets
from tests.unit.isolation.conftest import Make


def across(error: BaseException) -> Failure:
    return decode(json.loads(json.dumps(encode(error))))


def test_an_error_raised_in_a_worker_arrives_with_its_class_its_fields_and_its_cause(make: Make) -> None:
    failure = make(targets.raise_field).call(7).failure
    assert failure
    error = failure.error
    assert type(error) is FileError
    assert (error.path, error.line, error.field, error.message) == ("x.yaml", 7, "a.b", "is wrong")
    assert str(error) == failure.message == "x.yaml:7: a.b: is wrong"
    assert type(error.__cause__) is ValueError
    assert 'raise ValueError("inner")' in failure.traceback


def test_a_field_that_cannot_cross_is_none_and_notes_do_cross(fork: Make) -> None:
    with pytest.raises(VerificationError, match="wrong") as caught:
        fork(targets.raise_rows).call([1]).value()
    assert caught.value.comparison is None
    assert (str(caught.value), caught.value.__notes__) == ("wrong", ["noted"])
    assert across(VerificationError("wrong", comparison=[1, 2])).error.comparison == [1, 2]  # type: ignore[attr-defined]


def test_somebody_else_s_error_is_described(fork: Make) -> None:
    failure = fork(targets.raise_own).call().failure
    assert failure
    error = failure.error
    assert isinstance(error, ForeignError)
    assert error.kind == "tests.unit.isolation.targets.MineError"
    assert failure.message == "MineError: of my own"
    assert error.is_a("LookupError")
    assert error.is_a("builtins.LookupError")
    assert not error.is_a("KeyError")
    again = across(error).error
    assert isinstance(again, ForeignError)
    assert (again.kind, again.message, again.bases) == (error.kind, error.message, error.bases)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("No module named 'x'", name="x"), "ModuleNotFoundError: No module named 'x'"),
        (OSError(28, "No space left on device"), "OSError: [Errno 28] No space left on device"),
        (KeyError("k"), "KeyError: 'k'"),
        (MemoryError(), "MemoryError: "),
        (SystemExit(3), "it called sys.exit(3)"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
    ],
)
def test_a_built_in_error_arrives_as_itself(error: BaseException, message: str) -> None:
    failure = across(error)
    assert type(failure.error) is type(error)
    assert failure.message == message
    for field in ("name", "errno", "code"):
        assert getattr(failure.error, field, None) == getattr(error, field, None)


def test_one_whose_arguments_are_more_than_text_is_described() -> None:
    with pytest.raises(SyntaxError) as syntax:
        compile("(", "f.py", "exec")
    with pytest.raises(UnicodeDecodeError) as unicode:
        b"\xff".decode()
    for caught in (syntax, unicode):
        error = across(caught.value).error
        assert isinstance(error, ForeignError)
        assert error.is_a(type(caught.value).__name__)
        assert error.message == str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, KernelmarkError)
    ],
)
def test_every_class_of_this_package_crosses(name: str) -> None:
    kind: type[KernelmarkError] = getattr(errors, name)
    error = across(kind("message")).error
    assert type(error) is kind
    assert str(error) == "message" or isinstance(error, FileError)
    assert vars(error) == vars(kind("message"))


def test_fields_of_a_model_s_error_cross() -> None:
    error = across(ModelLoweringError("no", op="aten.x", source="m.py:3")).error
    assert isinstance(error, ModelLoweringError)
    assert (error.op, error.source, error.stage, str(error)) == ("aten.x", "m.py:3", "lower", "m.py:3: no")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=12,
    )
)
def test_what_no_error_was_encoded_as_is_refused_and_never_something_else(told: object) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        decode(told)  # type: ignore[arg-type]


def test_no_other_class_is_looked_up() -> None:
    told = {**encode(ValueError("x")), "class": "os.system", "args": ["echo"]}
    assert isinstance(decode(told).error, ForeignError)
    told = {**encode(ValueError("x")), "class": "builtins.eval"}
    assert isinstance(decode(told).error, ForeignError)
