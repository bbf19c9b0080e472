"""How much faster one implementation is than another, and how sure that is.

The unit is the block, not the sample. Samples of one pass are not independent (clocks, heat, neighbours
and memory placement drift over seconds): an interval from a bootstrap over pooled samples left out 1.0 in
up to 23 of 40 comparisons of a callable with itself; the interval over ten blocks did in 0 to 3 of 40.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev
from typing import Literal

from kernelmark.errors import TimingError
from kernelmark.records import Ratio
from kernelmark.stats.student import t_quantile

__all__ = ["paired_ratio"]

Blocks = Sequence[Sequence[int | float]]


def paired_ratio(ours_blocks: Blocks, baseline_blocks: Blocks, *, confidence: float = 0.95) -> Ratio:
    """Return baseline time over our time from samples taken in the same blocks; above 1, ours is faster.

    Each block gives the logarithm of the ratio of its two medians. The value is the exponential of their
    mean, and the interval is Student's t interval of that mean. One block gives no interval.

    Args:
        ours_blocks: Our samples in nanoseconds, one sequence per block.
        baseline_blocks: The baseline's, from the same blocks in the same order.
        confidence: How often such intervals hold the true ratio.

    Raises:
        ValueError: the two do not have the same number of blocks, there is none, a block is empty, or
            ``confidence`` is not strictly between 0 and 1.
        TimingError: a reading is not a positive finite time, and so has no ratio.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
    if len(ours_blocks) != len(baseline_blocks):
        raise ValueError(
            f"blocks pair one to one: ours has {len(ours_blocks)}, the baseline has {len(baseline_blocks)}"
        )
    if not ours_blocks:
        raise ValueError("there is no block to compare")
    logs = [
        math.log(_median(theirs, block, "the baseline") / _median(ours, block, "ours"))
        for block, (ours, theirs) in enumerate(zip(ours_blocks, baseline_blocks, strict=True))
    ]
    centre = fmean(logs)
    block_ratios = tuple(math.exp(log) for log in logs)
    if len(logs) == 1:
        return Ratio(value=math.exp(centre), confidence=confidence, blocks=1, block_ratios=block_ratios)
    reach = t_quantile((1 + confidence) / 2, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    low, high = math.exp(centre - reach), math.exp(centre + reach)
    return Ratio(
        value=math.exp(centre),
        low=low,
        high=high,
        confidence=confidence,
        blocks=len(logs),
        block_ratios=block_ratios,
        verdict=_verdict(low, high),
    )


def _median(samples: Sequence[int | float], block: int, whose: str) -> float:
    if not samples:
        raise ValueError(f"block {block} of {whose} is empty")
    for value in samples:
        if not (math.isfinite(value) and value > 0):
            raise TimingError(
                f"block {block} of {whose} holds a reading of {value!r} ns, which has no ratio;"
                " the call is too short for this timer: time several calls as one"
            )
    return median(samples)


def _verdict(low: float, high: float) -> Literal["faster", "slower", "undecided"]:
    if low > 1:
        return "faster"
    return "slower" if high < 1 else "undecided"
