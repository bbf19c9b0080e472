"""What a case says about its own answers: how they are checked, or why they are not.

A declaration is data. It knows how trustworthy a passed check makes a row, and imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from kernelmark.errors import UsageError
from kernelmark.records import Check
from kernelmark.verify.tolerance import Policy, Tolerance

__all__ = [
    "Checked",
    "Custom",
    "Declaration",
    "Exact",
    "Noncomparable",
    "Partial",
    "ReferenceInfeasible",
    "Rules",
    "Unestablished",
    "require_declaration",
    "require_reference",
]

Rules = Policy | Tolerance | Mapping[str | int, Tolerance] | None
"""A policy; one rule for all floating and complex outputs; or one per output by position, key or name (``0``, ``"y"``,
``"output[1]"``). What it leaves out keeps the table's rule for its dtype."""


@dataclass(frozen=True, slots=True)
class Exact:
    """All outputs are compared with the reference's.

    "Exact" is about coverage: the numbers may differ by the tolerance of their dtype, or by ``tolerance``.
    """

    tolerance: Rules = None

    checked: ClassVar[bool] = True
    status: ClassVar[Check] = Check.VERIFIED
    first: ClassVar[int | None] = None
    note: ClassVar[str] = ""

    def __post_init__(self) -> None:
        _require_tolerances(self.tolerance, "Exact")


@dataclass(frozen=True, slots=True)
class Partial:
    """Only the first ``first`` outputs are compared; the rest of what comes back is not looked at."""

    first: int
    tolerance: Rules = None

    checked: ClassVar[bool] = True
    status: ClassVar[Check] = Check.PARTIAL

    def __post_init__(self) -> None:
        if isinstance(self.first, bool) or not isinstance(self.first, int) or self.first < 1:
            raise UsageError(
                f"Partial(first={self.first!r}) checks nothing; give the number of outputs to check, 1 or"
                " more, or declare Unestablished with the reason"
            )
        _require_tolerances(self.tolerance, "Partial")

    @property
    def note(self) -> str:
        """How much is checked."""
        few = self.first == 1
        return f"only the first {'output is' if few else f'{self.first} outputs are'} checked"


@dataclass(frozen=True, slots=True)
class Custom:
    """The case's own assertion compares the outputs, after their structure was found equal.

    Args:
        check: Called as ``check(got, expected)``. It raises ``AssertionError`` where the answer is wrong,
            and returns nothing.
        note: How the answers are checked, for the report.
    """

    check: Callable[[Any, Any], None]
    note: str

    checked: ClassVar[bool] = True
    status: ClassVar[Check] = Check.CUSTOM
    first: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        if not callable(self.check):
            raise UsageError(
                f"Custom(check={self.check!r}) cannot be called; give a function of (got, expected)"
                " that raises AssertionError where the answer is wrong"
            )
        _require_text(self.note, "Custom", "note", "say how the answers are checked")


@dataclass(frozen=True, slots=True)
class _Unchecked:
    """A declaration under which nothing is compared: rows are timed, marked, and have no ratio."""

    reason: str

    checked: ClassVar[bool] = False
    status: ClassVar[Check] = Check.UNVERIFIED

    def __post_init__(self) -> None:
        _require_text(self.reason, type(self).__name__, "reason", "say why nothing is compared")

    @property
    def note(self) -> str:
        """The reason."""
        return self.reason


@dataclass(frozen=True, slots=True)
class Unestablished(_Unchecked):
    """Nobody has established yet what the right answer is."""


@dataclass(frozen=True, slots=True)
class ReferenceInfeasible(_Unchecked):
    """The right answer is defined, and computing it here costs too much memory or time."""


@dataclass(frozen=True, slots=True)
class Noncomparable(_Unchecked):
    """Right answers differ from one another, so that no comparison of numbers means anything."""

    status: ClassVar[Check] = Check.NONCOMPARABLE


Checked = Exact | Partial | Custom
Declaration = Checked | Unestablished | ReferenceInfeasible | Noncomparable


def require_declaration(declaration: Any, where: str = "verification()") -> Declaration:
    """Give ``declaration`` back.

    Raises:
        UsageError: it is none of the six.
    """
    if not isinstance(declaration, Declaration):
        names = ", ".join(kind.__name__ for kind in get_args(Declaration))
        text = repr(declaration)
        shown = text if len(text) <= 60 else f"a {type(declaration).__name__}"
        raise UsageError(
            f"{where} is {shown}; it must be one of {names} of kernelmark.verify, as an object: a number alone is"
            " a tolerance, as in Exact(Normalised(0.01)) or compare(tolerance=0.01)"
        )
    return declaration


def require_reference(declaration: Declaration, reference: object) -> None:
    """Refuse a declared check that has nothing to check against.

    Raises:
        UsageError: the declaration compares outputs and there is no reference.
    """
    if require_declaration(declaration).checked and not callable(reference):
        raise UsageError(
            f"{type(declaration).__name__} compares outputs with the reference's, and the reference is"
            f" {reference!r}; give the workload a reference, or declare Unestablished or"
            " ReferenceInfeasible with the reason"
        )


def _require_text(text: object, kind: str, field: str, what: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"{kind}({field}={text!r}): the {field} is blank; {what}")


def _require_tolerances(tolerance: object, kind: str) -> None:
    if isinstance(tolerance, Policy):
        return
    for rule in tolerance.values() if isinstance(tolerance, Mapping) else (tolerance,):
        if rule is not None and not isinstance(rule, Tolerance):
            raise UsageError(
                f"{kind}(tolerance={tolerance!r}): {rule!r} is no tolerance; use Elementwise(atol, rtol),"
                " Normalised(rtol) or Reduction(length), or a mapping from outputs to them"
            )
