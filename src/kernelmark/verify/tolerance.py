"""How far an output may lie from the reference's: the rules, and the one place that decides which, whatever the way in.

A rule is arithmetic on whatever it is given, float or tensor; nothing here imports torch or looks at data.

Who knows most decides: what is asked for (on a command line, in a call), else what a file says (a reference, a
suite, a workload's declaration), else what is known of the computation, by the output's dtype:

* :attr:`Form.ELEMENTS`, where a declaration such as ``Exact()`` says that each element counts by itself: the table
  of :func:`for_dtype`.
* :attr:`Form.WHOLE`, where nothing is said: :class:`Normalised`. A sum whose terms cancel has elements of which no
  digit is right, so no bound on each element by itself can be kept without knowing how many terms there are; the
  error against the size of the whole output can.

Integers and booleans are exact in every form, unless a rule names their output.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from kernelmark.errors import UsageError

__all__ = [
    "EXACT",
    "Elementwise",
    "Form",
    "Normalised",
    "OutputScale",
    "Policy",
    "Reduction",
    "Ruling",
    "Tolerance",
    "Tolerances",
    "for_dtype",
    "tolerances_of",
]

_BY_DTYPE = {
    "float16": (1e-3, 1e-3),
    "bfloat16": (1.6e-2, 1.6e-2),
    "float32": (1e-5, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex64": (1e-5, 1e-5),
    "complex128": (1e-7, 1e-7),
    # An 8-bit float holds so few values that two right answers round to neighbours: the relative part is the
    # distance to the next value (epsilon: 2⁻³ with three bits of fraction, 2⁻² with two), the absolute part
    # that distance near zero (the smallest subnormal). A second neighbour away is wrong, except at the top
    # of a binade.
    "float8_e4m3fn": (2.0**-9, 2.0**-3),
    "float8_e4m3fnuz": (2.0**-10, 2.0**-3),
    "float8_e5m2": (2.0**-16, 2.0**-2),
    "float8_e5m2fnuz": (2.0**-17, 2.0**-2),
}
"""dtype → (atol, rtol). What is not here (integers, bool, packed and scale-only formats) is exact."""

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

_UNIT_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


@dataclass(frozen=True, slots=True)
class OutputScale:
    """What a rule may know of one expected output besides the element at hand."""

    dtype: str
    epsilon: float = 0.0
    """Distance from 1 to the next value of the dtype; 0 for integers."""
    smallest: float = 0.0
    """Distance between values of the dtype next to zero; 0 for integers."""
    rms: float = 0.0
    """Root mean square of the finite elements; only computed where the rule asks for it."""


class Tolerance(ABC):
    """One rule. ``allowed`` says how large an element's error may be; the rest describes the rule."""

    __slots__ = ()

    needs_rms: ClassVar[bool] = False

    @abstractmethod
    def allowed(self, magnitude: Any, scale: OutputScale) -> Any:
        """Give the largest error that passes where the expected element's magnitude is ``magnitude``."""

    def rms_allowed(self, scale: OutputScale) -> float | None:
        """Give the largest root mean square error over the whole output; ``None`` where that is free."""
        return None

    @abstractmethod
    def describe(self, scale: OutputScale) -> str:
        """Say the rule in words, with its numbers for this output."""


@dataclass(frozen=True, slots=True)
class Elementwise(Tolerance):
    """Every element: ``|got - expected| <= atol + rtol · |expected|``. Both 0 means exact."""

    atol: float
    rtol: float

    def __post_init__(self) -> None:
        _require_number(f"Elementwise(atol={self.atol!r})", self.atol)
        _require_number(f"Elementwise(rtol={self.rtol!r})", self.rtol)

    def allowed(self, magnitude: Any, scale: OutputScale) -> Any:
        """Give the largest error of one element."""
        return self.atol + self.rtol * magnitude

    def describe(self, scale: OutputScale) -> str:
        """Say the rule in words."""
        return f"atol={self.atol:.6g} rtol={self.rtol:.6g}" if self.atol or self.rtol else "exact"


@dataclass(frozen=True, slots=True)
class Normalised(Tolerance):
    """The error against the size of the whole output rather than of each element.

    Two conditions, so that neither hides in the other. Drift:
    ``rms(got - expected) <= rtol · rms(expected)``, the normwise relative error in the 2-norm (Higham,
    *Accuracy and Stability of Numerical Algorithms*, 2nd ed., §1.2 and §6.2); alone it lets one element in a
    million be off by a thousand times ``rtol``. Outliers: every
    ``|got - expected| <= rtol · (|expected| + 8 · rms(expected))``; if errors were normal with the largest
    root mean square that the first condition allows, one in 10¹⁵ would lie beyond 8 of them.
    """

    rtol: float

    needs_rms: ClassVar[bool] = True
    PEAK: ClassVar[float] = 8.0

    def __post_init__(self) -> None:
        _require_number(f"Normalised(rtol={self.rtol!r})", self.rtol, zero=False)

    def allowed(self, magnitude: Any, scale: OutputScale) -> Any:
        """Give the largest error of one element."""
        return self.rtol * (magnitude + self.PEAK * scale.rms)

    def rms_allowed(self, scale: OutputScale) -> float:
        """Give the largest root mean square error."""
        return self.rtol * scale.rms

    def describe(self, scale: OutputScale) -> str:
        """Say the rule in words."""
        return (
            f"normalised rtol={self.rtol:.6g}: RMS error up to {self.rms_allowed(scale):.4g}, each error up"
            f" to {self.rtol:.6g}·|expected| + {self.PEAK * self.rms_allowed(scale):.4g}"
            f" ({self.PEAK:g} times that RMS error)"
        )


@dataclass(frozen=True, slots=True)
class Reduction(Tolerance):
    """What honest arithmetic of a named precision gives for sums of ``length`` products.

    Every element: ``|got - expected| <= eps · |expected| + tiny + λ · √length · u · rms(expected)``, with
    ``eps`` and ``tiny`` of the output's dtype (both sides are rounded to it once) and ``u`` the unit roundoff
    of the accumulator.

    The sum ``s_K`` of K products, added one after another, picks up ``Σ δ_k · s_k`` over the partial sums,
    ``|δ_k| <= u``. With rounding errors that are zero on average and independent of what came before, the
    model of Higham and Mary (*A New Approach to Probabilistic Rounding Error Analysis*, SIAM J. Sci. Comput.
    41(5), 2019), that is below ``λ · u · sqrt(Σ s_k²)`` but for a chance of ``2·exp(-λ²/2)``
    (Azuma–Hoeffding). For products alike in distribution ``E s_k² <= (k/K) · E s_K²``, whether their mean is
    zero or not, so ``sqrt(Σ s_k²)`` is about ``sqrt(K/2) · rms(s_K)``; rounding the products adds less than
    one ``rms(s_K)``. ``√K · rms`` covers both from K = 12 on, and the output itself supplies the ``rms``. For
    zero-mean data it is the sharper bound of Higham and Mary's second paper (SIAM J. Sci. Comput. 42(5),
    2020); for products of one sign ``rms`` is ``Σ|a||b|`` and it is the first one's.

    Blocked and pairwise sums err less and pass. Where at least one factor is zero on average, TF32 or
    half-precision factors err by about ``3e-4 · rms`` whatever the length: tens of times what is allowed for
    K = 4096, and caught up to lengths of a million. Where all products have one sign, those errors
    average out and are at K = 4096 no larger than an honest sequential sum's, so no bound on the output can
    tell the two apart.

    Args:
        length: Terms in each sum: K of a matrix product, the row length of a norm.
        accumulate: Precision of the accumulator: float16, bfloat16, float32 or float64.
        confidence: λ. At 8 the worst of 16 million elements of an honest 4096³ product (cuBLAS on an H200)
            stood at 0.57 of what is allowed, and TF32's at 52 times that. Rows of twice the scale of the whole
            output use this margin up: raise λ, or give a case like that its own check.
    """

    length: int
    accumulate: str = "float32"
    confidence: float = 8.0

    needs_rms: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or not isinstance(self.length, int) or self.length < 1:
            raise UsageError(
                f"Reduction(length={self.length!r}): give the number of terms in each sum, 1 or more"
            )
        if _name(self.accumulate) not in _UNIT_ROUNDOFF:
            raise UsageError(
                f"Reduction(accumulate={self.accumulate!r}): not an accumulator this rule knows;"
                f" use one of {', '.join(_UNIT_ROUNDOFF)}"
            )
        _require_number(f"Reduction(confidence={self.confidence!r})", self.confidence, zero=False)

    @property
    def _factor(self) -> float:
        return self.confidence * math.sqrt(self.length) * _UNIT_ROUNDOFF[_name(self.accumulate)]

    def allowed(self, magnitude: Any, scale: OutputScale) -> Any:
        """Give the largest error of one element."""
        return scale.epsilon * magnitude + (scale.smallest + self._factor * scale.rms)

    def describe(self, scale: OutputScale) -> str:
        """Say the rule in words."""
        return (
            f"sums of {self.length} terms in {_name(self.accumulate)}: each error up to"
            f" {scale.epsilon:.4g}·|expected| + {self._factor * scale.rms:.4g}"
            f" (= {self.confidence:g}·√{self.length}·u·RMS, RMS of the expected output {scale.rms:.4g})"
        )


def for_dtype(dtype: object) -> Elementwise:
    """Give the rule for outputs of ``dtype``, a torch dtype or its name; exact where the table has none."""
    return Elementwise(*_BY_DTYPE.get(_name(dtype), (0.0, 0.0)))


# --- who decides --------------------------------------------------------------------------------------------


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
        rule: A rule as it is, in place of all these.
        source: Who says so, for the report: ``--atol``, ``reference.py``.

    Raises:
        UsageError: a number that no rule takes, or two ways of saying it at once.
    """

    figure: float | None = None
    atol: float | None = None
    rtol: float | None = None
    rule: Tolerance | None = None
    source: str = ""

    def __post_init__(self) -> None:
        told = f"{self.source}: " if self.source else ""
        for name, value in (("tolerance", self.figure), ("atol", self.atol), ("rtol", self.rtol)):
            if value is not None:
                _require_number(f"{told}{name} = {value!r}", value)
        if self.figure == 0:
            raise UsageError(
                f"{told}tolerance = 0: give a number above 0; an exact answer is atol 0 and rtol 0"
            )
        ways = {
            "a tolerance for the whole output": self.figure,
            "atol and rtol": self.atol if self.rtol is None else self.rtol,
            repr(self.rule): self.rule,
        }
        given = [what for what, value in ways.items() if value is not None]
        if len(given) > 1:
            raise UsageError(
                f"{told}tolerance: {given[0]} excludes {' and '.join(given[1:])}; say one of them"
            )

    def __bool__(self) -> bool:
        return any(each is not None for each in (self.figure, self.atol, self.rtol, self.rule))

    @property
    def whole(self) -> Tolerance | None:
        """The rule that this is by itself; ``None`` where it only says ``atol`` or ``rtol``, or nothing."""
        return self.rule if self.figure is None else Normalised(self.figure)


class Ruling(NamedTuple):
    """A rule, and who said so."""

    rule: Tolerance
    source: str


@dataclass(frozen=True, slots=True)
class Policy:
    """What decides the rule of each output of a case; a declaration takes it as its ``tolerance``.

    What the user asked for in this run goes before what a file says, the reference's or the suite's.
    """

    form: Form = Form.WHOLE
    asked: Tolerances = field(default_factory=Tolerances)
    file: Tolerances = field(default_factory=Tolerances)

    def for_dtype(self, dtype: object) -> Ruling:
        """Give the rule for outputs of ``dtype``, a torch dtype or its name, and who said so."""
        name = _name(dtype)
        table = for_dtype(name)
        if table == EXACT:
            return Ruling(EXACT, f"by its dtype {name}")
        first = self.asked or self.file
        if (whole := first.whole) is not None:
            return Ruling(whole, first.source or "asked for")
        if first:
            (atol, by), (rtol, also_by) = (self._figure(each, table, name) for each in ("atol", "rtol"))
            return Ruling(Elementwise(atol, rtol), by if by == also_by else f"atol: {by}, rtol: {also_by}")
        if self.form is Form.WHOLE and name in _WHOLE:
            return Ruling(Normalised(_WHOLE[name]), f"the whole output, by its dtype {name}")
        return Ruling(table, f"each element, by its dtype {name}")

    def _figure(self, figure: str, table: Elementwise, name: str) -> tuple[float, str]:
        """Take one of the two figures of elements from the first who says it."""
        for said in (self.asked, self.file):
            if (value := getattr(said, figure)) is not None:
                return value, said.source or "asked for"
        return getattr(table, figure), f"by its dtype {name}"


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


def _name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _require_number(told: str, value: object, *, zero: bool = True) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (value == 0 and not zero):  # type: ignore[operator]
        raise UsageError(f"{told}: give a finite number, {'at least 0' if zero else 'above 0'}")


EXACT = Elementwise(0.0, 0.0)
"""Nothing may differ."""
