"""Many cases at a glance: for each baseline how often ours is faster, and the geometric mean of the ratios."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelmark.records import Check, Ratio, Role, Row
from kernelmark.stats.mean_ratio import MeanRatio, mean_ratio

__all__ = ["Overview", "overview"]


@dataclass(frozen=True, slots=True)
class Overview:
    """Ours beside one baseline.

    Args:
        baseline: Its name.
        cases: How many cases have a row of it.
        faster: Cases in which ours is surely faster.
        slower: Cases in which ours is surely slower.
        undecided: Cases whose interval holds 1, or whose ratio has none.
        failed: Cases in which ours or the baseline failed its check.
        without: All other cases without a ratio.
        ratios: Case and ratio, the smallest ratio first.
        mean: The geometric mean of the ratios; ``None`` where there is none.
    """

    baseline: str
    cases: int
    faster: int
    slower: int
    undecided: int
    failed: int
    without: int
    ratios: tuple[tuple[str, Ratio], ...]
    mean: MeanRatio | None


def overview(rows: Iterable[Row]) -> tuple[Overview, ...]:
    """Sum ``rows`` up, one baseline after the other."""
    rows = tuple(rows)
    broken = {(row.op, row.case) for row in rows if row.role is Role.OURS and row.check is Check.FAILED}
    names = dict.fromkeys(row.implementation for row in rows if row.role is Role.BASELINE)
    return tuple(
        _of([row for row in rows if row.role is Role.BASELINE and row.implementation == name], broken)
        for name in names
    )


def _of(rows: list[Row], broken: set[tuple[str | None, str]]) -> Overview:
    ratios = [(row.case, row.ratio) for row in rows if row.ratio is not None]
    verdicts = [ratio.verdict for _, ratio in ratios]
    failed = [
        row
        for row in rows
        if row.ratio is None and (row.check is Check.FAILED or (row.op, row.case) in broken)
    ]
    faster, slower = verdicts.count("faster"), verdicts.count("slower")
    return Overview(
        rows[0].implementation,
        len(rows),
        faster,
        slower,
        len(ratios) - faster - slower,
        len(failed),
        len(rows) - len(ratios) - len(failed),
        tuple(sorted(ratios, key=lambda each: each[1].value)),
        mean_ratio([ratio for _, ratio in ratios]) if ratios else None,
    )
