"""KernelBench's score: the share of what was attempted that is correct and more than p times as fast as a baseline.

Pure. A speed-up that equals p does not count. Besides the estimate there is what is certain: the lower end of the
interval lies above p.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelmark.kernelbench.candidates.judged import Judged
from kernelmark.kernelbench.statuses import Status

__all__ = ["THRESHOLDS", "FastP", "fast_p"]

THRESHOLDS = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Nothing is as slow as 0, so that fast_0 is the share of what is correct."""


@dataclass(frozen=True, slots=True)
class FastP:
    """The score against one baseline, at each of the thresholds."""

    baseline: str
    attempted: int
    """Candidates, or problems where the best candidate of each counts."""
    best: bool
    """Whether a problem counts once, where any of its candidates does."""
    estimated: tuple[float, ...]
    certain: tuple[float, ...]


def fast_p(judged: Sequence[Judged], baselines: Sequence[str]) -> tuple[FastP, ...]:
    """Score all candidates against each baseline; where a problem has several, also by the best of each problem."""
    groups: dict[str, list[Judged]] = {}
    for each in judged:
        groups.setdefault(each.problem, []).append(each)
    apart = [[each] for each in judged]
    kinds = [(False, apart)]
    if len(groups) < len(judged):
        kinds.append((True, list(groups.values())))
    return tuple(
        FastP(
            baseline,
            len(parts),
            best,
            tuple(_share(parts, baseline, p, _estimate) for p in THRESHOLDS),
            tuple(_share(parts, baseline, p, _at_least) for p in THRESHOLDS),
        )
        for best, parts in kinds
        for baseline in baselines
        if parts
    )


def _share(
    parts: Sequence[Sequence[Judged]], baseline: str, p: float, speedup: Callable[[Judged, str], float | None]
) -> float:
    passed = sum(any(_counts(each, baseline, p, speedup) for each in part) for part in parts)
    return passed / len(parts)


def _counts(judged: Judged, baseline: str, p: float, speedup: Callable[[Judged, str], float | None]) -> bool:
    if judged.status is not Status.VERIFIED:
        return False
    if p == 0:
        return True
    known = speedup(judged, baseline)
    return known is not None and known > p


def _estimate(judged: Judged, baseline: str) -> float | None:
    found = judged.speedups.get(baseline)
    return None if found is None else found.value


def _at_least(judged: Judged, baseline: str) -> float | None:
    found = judged.speedups.get(baseline)
    return None if found is None else found.low
