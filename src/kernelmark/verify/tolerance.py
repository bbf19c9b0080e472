"""How far an output may lie from the reference's: the table by dtype, and the two rules for long reductions.

A rule is arithmetic on whatever it is given, float or tensor; nothing here imports torch or looks at data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from kernelmark.errors import UsageError

__all__ = ["EXACT", "Elementwise", "Normalised", "OutputScale", "Reduction", "Tolerance", "for_dtype"]

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

_UNIT_ROUNDOFF = {
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float32": 2.0**-24,
    "float64": 2.0**-53,
}


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
        _require_number(self, "atol", self.atol, zero=True)
        _require_number(self, "rtol", self.rtol, zero=True)

    def allowed(self, magnitude: Any, scale: OutputScale) -> Any:
        """Give ``atol + rtol · magnitude``."""
        return self.atol + self.rtol * magnitude

    def describe(self, scale: OutputScale) -> str:
        """Say the rule in words."""
        if self.atol == 0 and self.rtol == 0:
            return "exact"
        return f"atol={self.atol:.6g} rtol={self.rtol:.6g}"


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
        _require_number(self, "rtol", self.rtol)

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
        if _dtype_name(self.accumulate) not in _UNIT_ROUNDOFF:
            raise UsageError(
                f"Reduction(accumulate={self.accumulate!r}): not an accumulator this rule knows;"
                f" use one of {', '.join(_UNIT_ROUNDOFF)}"
            )
        _require_number(self, "confidence", self.confidence)

    @property
    def _factor(self) -> float:
        roundoff = _UNIT_ROUNDOFF[_dtype_name(self.accumulate)]
        return self.confidence * math.sqrt(self.length) * roundoff

    def allowed(self, magnitude: Any, scale: OutputScale) -> Any:
        """Give the largest error of one element."""
        return scale.epsilon * magnitude + (scale.smallest + self._factor * scale.rms)

    def describe(self, scale: OutputScale) -> str:
        """Say the rule in words."""
        return (
            f"sums of {self.length} terms in {_dtype_name(self.accumulate)}: each error up to"
            f" {scale.epsilon:.4g}·|expected| + {self._factor * scale.rms:.4g}"
            f" (= {self.confidence:g}·√{self.length}·u·RMS, RMS of the expected output {scale.rms:.4g})"
        )


def for_dtype(dtype: object) -> Elementwise:
    """Give the rule for outputs of ``dtype``, a torch dtype or its name; exact where the table has none."""
    atol, rtol = _BY_DTYPE.get(_dtype_name(dtype), (0.0, 0.0))
    return Elementwise(atol, rtol)


def _dtype_name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _require_number(rule: object, field: str, value: object, *, zero: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or (value == 0 and not zero):  # type: ignore[operator]
        least = "0 or more" if zero else "above 0"
        raise UsageError(f"{type(rule).__name__}({field}={value!r}): give a finite number, {least}")


EXACT = Elementwise(0.0, 0.0)
"""Nothing may differ."""
