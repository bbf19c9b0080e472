import subprocess
import sys

import pytest

from kernelmark.errors import UsageError
from kernelmark.records import Check
from kernelmark.verify.declarations import (
    Custom,
    Exact,
    Noncomparable,
    Partial,
    ReferenceInfeasible,
    Unestablished,
    require_declaration,
    require_reference,
)
from kernelmark.verify.tolerance import Elementwise

UNCHECKED = [Unestablished, ReferenceInfeasible, Noncomparable]


def _passes(got, expected):
    return None


@pytest.mark.spec("T19")
@pytest.mark.parametrize("first", [0, -1, True, 1.5, "2", None])
def test_partial_that_checks_nothing_is_refused(first):
    with pytest.raises(UsageError, match="Partial"):
        Partial(first)


@pytest.mark.spec("T19")
def test_checked_declarations_keep_the_ratio():
    declared = [Exact(), Partial(2), Custom(_passes, "by hand")]
    assert [d.status for d in declared] == [Check.VERIFIED, Check.PARTIAL, Check.CUSTOM]
    assert all(d.checked and d.status.comparable for d in declared)
    assert [d.note for d in declared] == ["", "only the first 2 outputs are checked", "by hand"]


@pytest.mark.spec("T20")
@pytest.mark.parametrize("kind", UNCHECKED)
def test_unchecked_declarations_are_timed_and_have_no_ratio(kind):
    declared = kind("nobody knows")
    assert not declared.checked
    assert declared.status.timeable
    assert not declared.status.comparable
    assert declared.note == declared.reason == "nobody knows"


@pytest.mark.spec("T20")
def test_only_noncomparable_is_marked_so():
    assert Unestablished("x").status is ReferenceInfeasible("x").status is Check.UNVERIFIED
    assert Noncomparable("x").status is Check.NONCOMPARABLE


@pytest.mark.parametrize("kind", UNCHECKED)
@pytest.mark.parametrize("reason", ["", "  \n", None])
def test_a_blank_reason_is_refused_by_name(kind, reason):
    with pytest.raises(UsageError, match=kind.__name__):
        kind(reason)


@pytest.mark.spec("T19")
@pytest.mark.parametrize("note", ["", " ", None])
def test_a_custom_check_must_say_how_it_checks(note):
    with pytest.raises(UsageError, match="say how the answers are checked"):
        Custom(_passes, note)


def test_a_custom_check_that_cannot_be_called_is_refused():
    with pytest.raises(UsageError, match="cannot be called"):
        Custom(0.01, "one per cent")  # type: ignore[arg-type]


@pytest.mark.parametrize("tolerance", [1e-3, (1e-3, 1e-3), {"y": 1e-3}, {0: Elementwise(0, 0), 1: "x"}])
def test_what_is_no_tolerance_is_refused_where_it_is_declared(tolerance):
    for declare in (lambda: Exact(tolerance), lambda: Partial(1, tolerance)):
        with pytest.raises(UsageError, match="is no tolerance"):
            declare()


@pytest.mark.spec("T25")
@pytest.mark.parametrize("declared", [Exact(), Partial(1), Custom(_passes, "by hand")])
def test_a_checked_declaration_without_a_reference_is_an_error(declared):
    with pytest.raises(UsageError, match=f"{type(declared).__name__} compares outputs .* reference"):
        require_reference(declared, None)
    require_reference(declared, lambda x: x)


@pytest.mark.spec("T25")
@pytest.mark.parametrize("kind", UNCHECKED)
def test_an_unchecked_declaration_needs_no_reference(kind):
    require_reference(kind("why not"), None)


@pytest.mark.parametrize("value", [None, Exact, "exact", True])
def test_what_is_no_declaration_is_refused_with_the_list(value):
    with pytest.raises(UsageError, match="one of Exact, Partial, Custom, Unestablished"):
        require_declaration(value)


def test_declarations_are_frozen():
    with pytest.raises(AttributeError):
        Exact().tolerance = Elementwise(1, 1)  # type: ignore[misc]


def test_declarations_and_tolerances_import_no_torch():
    code = (
        "import sys; from kernelmark.verify import declarations as d, tolerance as t;"
        "t.for_dtype('float16'); d.Exact(t.Reduction(4096)); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
