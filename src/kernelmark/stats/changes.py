"""What is not in one run as it was in another: checks that changed, and ratios that moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kernelmark.records import Check, Ratio, Role, Row

__all__ = ["Changes", "CheckChange", "RatioChange", "changes", "direction"]

STILL = 0.1
"""A baseline that itself takes a tenth more or less time says that more than ours has changed: a ratio beside it
is then told, and decides nothing."""

_TRUST = list(Check)


@dataclass(frozen=True, slots=True)
class CheckChange:
    """A row whose check is another; ``None`` where a run has no such row."""

    case: str
    implementation: str
    before: Check | None
    after: Check | None

    @property
    def worse(self) -> bool:
        """Whether less is known of its answers than before."""
        if self.before is None or self.after is None:
            return self.after is None
        return _TRUST.index(self.after) > _TRUST.index(self.before)


@dataclass(frozen=True, slots=True)
class RatioChange:
    """The ratio to one baseline in both runs, and the baseline's own time after over before."""

    case: str
    baseline: str
    before: Ratio | None
    after: Ratio | None
    moved: float | None

    @property
    def verdict(self) -> Literal["faster", "slower", "moved", ""]:
        """Say what became of ours: nothing where the intervals overlap, ``moved`` where the baseline did."""
        found = direction(self.before, self.after)
        return "moved" if found and self.moved and abs(self.moved - 1) > STILL else found


@dataclass(frozen=True, slots=True)
class Changes:
    """Two runs beside each other."""

    checks: tuple[CheckChange, ...]
    ratios: tuple[RatioChange, ...]

    @property
    def worse(self) -> bool:
        """Whether a check is worse, a case is gone, or ours is slower beside a baseline."""
        return any(each.worse for each in self.checks) or any(
            each.verdict == "slower" for each in self.ratios
        )


def changes(before: Iterable[Row], after: Iterable[Row]) -> Changes:
    """Compare the rows of two runs, in the order of the later one; rows pair by op, case and implementation."""
    old, new = ({(row.op, row.case, row.implementation): row for row in rows} for rows in (before, after))
    pairs = {key: (old.get(key), new.get(key)) for key in dict.fromkeys([*new, *old])}
    checks, ratios = [], []
    for (_, case, name), (first, second) in pairs.items():
        was, now = (row.check if row else None for row in (first, second))
        if was is not now:
            checks.append(CheckChange(case, name, was, now))
        if any(row and row.role is Role.BASELINE and row.ratio for row in (first, second)):
            earlier, later = (row.ratio if row else None for row in (first, second))
            ratios.append(RatioChange(case, name, earlier, later, _moved(first, second)))
    return Changes(tuple(checks), tuple(ratios))


def direction(before: Ratio | None, after: Ratio | None) -> Literal["faster", "slower", ""]:
    """Say whether a ratio changed: only where both intervals are there and do not overlap."""
    if before and after and before.low and before.high and after.low and after.high:
        if after.low > before.high:
            return "faster"
        if after.high < before.low:
            return "slower"
    return ""


def _moved(before: Row | None, after: Row | None) -> float | None:
    if before and after and before.timing and after.timing and before.timing.device_busy.median_ns:
        return after.timing.device_busy.median_ns / before.timing.device_busy.median_ns
    return None
