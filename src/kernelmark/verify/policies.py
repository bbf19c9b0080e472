"""The one place that decides how far an output may lie from the reference's, whatever the way in.

Who knows most decides: what is asked for (on a command line, in a call), else what a file says (a reference, a
suite, a workload's declaration), else what is known of the computation, by the output's dtype:

* :attr:`Form.ELEMENTS`, where a declaration such as ``Exact()`` says that each element counts by itself: the table
  of :func:`for_dtype`.
* :attr:`Form.WHOLE`, where nothing is said: :class:`Normalised`. A sum whose terms cancel has elements of which no
  digit is right, so no bound on each element by itself can be kept without knowing how many terms there are; the
  error against the size of the whole output can.

Integers and booleans are exact in every form, unless a rule names their output. Nothing here imports torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from kernelmark.errors import UsageError
from kernelmark.verify.tolerance import EXACT, Elementwise, Normalised, Reduction, Tolerance, for_dtype

__all__ = ["Form", "Policy", "Ruling", "Tolerances", "policy", "tolerances_of"]

_WHOLE = {
    "float64": 1e-9,
    "float32": 1e-4,
    "float16": 4e-3,
    "bfloat16": 2e-2,
    "complex128": 1e-9,
    "complex64": 1e-4,
}
"""dtype → largest root mean square error over that of the answer. A few units of the type's precision for types
whose intermediate results are rounded (float16 2⁻¹¹, bfloat16 2⁻⁸); for float32 and float64 what sums in another
order and vectorised functions of four units may add up to over a deep net, hundreds of times below what a wrong
element makes. TF32 factors err by 3e-4 and are caught. What is not here keeps the table of elements."""


class Form(StrEnum):
    """What is known of a computation about whose tolerance nobody says anything."""

    ELEMENTS = "elements"
    """Each element counts by itself."""
    WHOLE = "whole"
    """One operation or a whole net, with sums of unknown length."""


@dataclass(frozen=True, slots=True)
class Tolerances:
    """What somebody says of the tolerance; ``None`` everywhere says nothing.

    Args:
        figure: Largest root mean square error over that of the answer (:class:`Normalised`).
        atol: With ``rtol``: each element by itself (:class:`Elementwise`).
        rtol: What is left out of the two is said by the next who may, and at last by the table for the dtype.
        length: Terms in each sum (:class:`Reduction`).
        rule: A rule as it is, in place of all these.
        source: Who says so, for the report: ``--atol``, ``reference.py``.

    Raises:
        UsageError: a number that no rule takes, or two ways of saying it at once.
    """

    figure: float | None = None
    atol: float | None = None
    rtol: float | None = None
    length: int | None = None
    rule: Tolerance | None = None
    source: str = ""

    def __post_init__(self) -> None:
        for name, value in (("tolerance", self.figure), ("atol", self.atol), ("rtol", self.rtol)):
            _require_number(self._told(name), value)
        if self.figure == 0:
            raise UsageError(
                f"{self._told('tolerance')} = 0: give a number above 0; an exact answer is atol 0 and rtol 0"
            )
        if self.length is not None:
            Reduction(self.length)
        ways = {
            "a tolerance for the whole output": self.figure,
            "atol and rtol": self.atol if self.rtol is None else self.rtol,
            "the length of the sums": self.length,
            "a rule": self.rule,
        }
        given = [what for what, value in ways.items() if value is not None]
        if len(given) > 1:
            raise UsageError(
                f"{self._told('tolerance')}: {given[0]} excludes {' and '.join(given[1:])}; say one of them"
            )

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.figure, self.atol, self.rtol, self.length, self.rule))

    def _told(self, name: str) -> str:
        return f"{self.source}: {name}" if self.source else name


class Ruling(NamedTuple):
    """A rule, and who said so."""

    rule: Tolerance
    source: str


@dataclass(frozen=True, slots=True)
class Policy:
    """What decides the rule of each output of a case; a declaration takes it as its ``tolerance``."""

    form: Form = Form.WHOLE
    asked: Tolerances = field(default_factory=Tolerances)
    file: Tolerances = field(default_factory=Tolerances)

    def for_dtype(self, dtype: object) -> Ruling:
        """Give the rule for outputs of ``dtype``, a torch dtype or its name."""
        return policy(dtype, self.form, self.asked, self.file)


def policy(
    dtype: object,
    form: Form = Form.WHOLE,
    asked: Tolerances | None = None,
    file: Tolerances | None = None,
) -> Ruling:
    """Give the rule for outputs of ``dtype``, and its source.

    Args:
        dtype: A torch dtype or its name.
        form: What is known of the computation, where neither of the next two says anything.
        asked: What the user asks for in this run.
        file: What a file says: the reference's, the suite's.
    """
    name = str(dtype).removeprefix("torch.")
    table = for_dtype(name)
    if table == EXACT:
        return Ruling(EXACT, f"by its dtype {name}")
    for said in (asked, file):
        if said and (whole := _whole(said)) is not None:
            return Ruling(whole, said.source or "asked for")
        if said and (said.atol is not None or said.rtol is not None):
            return _elementwise(name, table, asked, file)
    if form is Form.WHOLE and name in _WHOLE:
        return Ruling(Normalised(_WHOLE[name]), f"the whole output, by its dtype {name}")
    return Ruling(table, f"each element, by its dtype {name}")


def tolerances_of(value: Any, source: str) -> Tolerances:
    """Read what a caller wrote: a figure, ``(atol, rtol)``, a rule, or nothing.

    Raises:
        UsageError: it is none of these.
    """
    if value is None or isinstance(value, Tolerances):
        return value or Tolerances()
    if isinstance(value, Tolerance):
        return Tolerances(rule=value, source=source)
    if isinstance(value, tuple | list) and len(value) == 2:
        return Tolerances(atol=value[0], rtol=value[1], source=source)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Tolerances(figure=value, source=source)
    raise UsageError(
        f"{source} = {value!r}: give one number (the RMS error over the answer's), (atol, rtol) for each element"
        " by itself, or Elementwise(atol, rtol), Normalised(rtol) or Reduction(length) of kernelmark.verify"
    )


def _whole(said: Tolerances) -> Tolerance | None:
    """Give the rule that ``said`` is by itself; ``None`` where it only says ``atol`` or ``rtol``."""
    if said.rule is not None:
        return said.rule
    if said.figure is not None:
        return Normalised(said.figure)
    return Reduction(said.length) if said.length is not None else None


def _elementwise(name: str, table: Elementwise, asked: Tolerances | None, file: Tolerances | None) -> Ruling:
    """Take each of the two figures from the first who says it."""
    found, sources = {}, {}
    for figure in ("atol", "rtol"):
        for said in (asked, file):
            if said is not None and getattr(said, figure) is not None:
                found[figure], sources[figure] = getattr(said, figure), said.source or "asked for"
                break
        else:
            found[figure], sources[figure] = getattr(table, figure), f"by its dtype {name}"
    same = sources["atol"] == sources["rtol"]
    source = sources["atol"] if same else f"atol: {sources['atol']}, rtol: {sources['rtol']}"
    return Ruling(Elementwise(found["atol"], found["rtol"]), source)


def _require_number(name: str, value: object) -> None:
    if value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:  # type: ignore[operator]
        raise UsageError(f"{name} = {value!r}: give a finite number of at least 0")
