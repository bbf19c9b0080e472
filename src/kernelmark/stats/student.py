"""The quantile of Student's t distribution, which the interval over blocks needs.

The number of degrees of freedom is always whole here, so the distribution function is a finite sum
(Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4) and no library is needed.
"""

from __future__ import annotations

import math

__all__ = ["t_quantile"]


def t_quantile(probability: float, degrees: int) -> float:
    """Return what a t variable with ``degrees`` degrees of freedom stays below with ``probability``.

    Raises:
        ValueError: ``probability`` is not strictly between 0 and 1, or ``degrees`` is below 1.
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie strictly between 0 and 1, got {probability!r}")
    if isinstance(degrees, bool) or not isinstance(degrees, int) or degrees < 1:
        raise ValueError(f"degrees must be a whole number of at least 1, got {degrees!r}")
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    # Bisection on the angle whose tangent is t/sqrt(degrees): its range is bounded where that of t is not.
    wanted = 2 * probability - 1
    low, high = 0.0, math.pi / 2
    while (middle := (low + high) / 2) not in (low, high):
        if _within(middle, degrees) < wanted:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    """Return the probability that ``|T| < sqrt(degrees)·tan(angle)``, by formulas 26.7.3 and 26.7.4."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    if degrees == 1:
        return 2 * angle / math.pi
    term = cosine if odd else 1.0
    total = term
    # Each term follows from the one before it: ·2/3, ·4/5, ... for odd degrees, ·1/2, ·3/4, ... for even.
    for numerator in range(1 + odd, degrees - 2, 2):
        term *= cosine * cosine * numerator / (numerator + 1)
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
