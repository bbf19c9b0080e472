"""One ratio for many comparisons: their geometric mean, and how sure that is.

It takes ratios with their intervals as they were stored, and knows neither samples nor what was compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from kernelmark.records import Ratio
from kernelmark.stats.student import t_quantile

__all__ = ["MeanRatio", "mean_ratio"]


@dataclass(frozen=True, slots=True)
class MeanRatio:
    """The geometric mean of several ratios, with the interval that the ratios' own intervals give it."""

    value: float
    low: float | None
    high: float | None
    count: int
    """How many ratios it is of."""
    confidence: float
    verdict: Literal["faster", "slower", "undecided", "no interval"]


def mean_ratio(ratios: Sequence[Ratio], *, confidence: float = 0.95) -> MeanRatio:
    """Give the geometric mean of ``ratios`` with the interval of what was measured, not of what was chosen.

    The cases are taken as given: the interval says where the mean of these same cases would lie if they were
    measured again, and nothing about other cases. Each ratio's interval gives the standard error of its
    logarithm (half its width over the t quantile that it was made with). Cases are measured one after the other,
    so their errors are independent, and the standard error of the mean logarithm is the root of the sum of their
    squares, over their number (JCGM 100:2008, *Guide to the expression of uncertainty in measurement*, 5.1.2).
    Its degrees of freedom are those of Welch and Satterthwaite, rounded down (the same, G.4.1).

    One ratio without an interval leaves the mean without one.

    Args:
        ratios: What to combine, each with the confidence and the blocks of its interval.
        confidence: How often such intervals hold the mean of the true ratios.

    Raises:
        ValueError: there is no ratio, or ``confidence`` is not strictly between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
    if not ratios:
        raise ValueError("there is no ratio to take the mean of")
    centre = fmean(math.log(ratio.value) for ratio in ratios)
    value, count = math.exp(centre), len(ratios)
    errors = [_log_error(ratio) for ratio in ratios]
    known = [error for error in errors if error is not None]
    if len(known) < count:
        return MeanRatio(value, None, None, count, confidence, "no interval")
    degrees = _effective_degrees(known, [ratio.blocks - 1 for ratio in ratios])
    error = math.sqrt(math.fsum(each * each for each in known)) / count
    reach = t_quantile((1 + confidence) / 2, degrees) * error
    low, high = math.exp(centre - reach), math.exp(centre + reach)
    return MeanRatio(value, low, high, count, confidence, _verdict(low, high))


def _log_error(ratio: Ratio) -> float | None:
    """Give the standard error of the logarithm of ``ratio``; ``None`` where it has no interval."""
    if ratio.low is None or ratio.high is None or ratio.blocks < 2:
        return None
    reach = (math.log(ratio.high) - math.log(ratio.low)) / 2
    return reach / t_quantile((1 + ratio.confidence) / 2, ratio.blocks - 1)


def _effective_degrees(errors: Sequence[float], degrees: Sequence[int]) -> int:
    largest = max(errors)
    if not largest:
        return min(degrees)
    # against the largest, so that the fourth power of a small error is not lost
    squares = [(error / largest) ** 2 for error in errors]
    total = math.fsum(squares)
    weighted = math.fsum(square * square / each for square, each in zip(squares, degrees, strict=True))
    # equal errors of n cases give exactly n times the degrees of one, which rounding may put just below
    return max(1, math.floor(total * total / weighted * (1 + 1e-12)))


def _verdict(low: float, high: float) -> Literal["faster", "slower", "undecided"]:
    if low > 1:
        return "faster"
    return "slower" if high < 1 else "undecided"
