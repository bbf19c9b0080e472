"""What is not in one run as it was in another: checks that changed, and ratios that moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeVar

from kernelmark.records import Check, Ratio, Role, Row

__all__ = ["Changes", "CheckChange", "RatioChange", "changes", "direction", "worse"]

STILL = 0.1
"""A baseline that itself takes a tenth more or less time says that more than ours has changed: a ratio beside it
is then told, and decides nothing."""

_Word = TypeVar("_Word", bound=StrEnum)
_Key = TypeVar("_Key", bound=tuple[str | None, str, str])
"""Op, case and implementation."""


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
        return worse(self.before, self.after)


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


def changes(before: Mapping[_Key, Row], after: Mapping[_Key, Row]) -> Changes:
    """Compare the rows of two runs, in the order of the later one."""
    checks, ratios = [], []
    for key in dict.fromkeys([*after, *before]):
        _, case, name = key
        first, second = before.get(key), after.get(key)
        was, now = (row.check if row else None for row in (first, second))
        if was is not now:
            checks.append(CheckChange(case, name, was, now))
        if any(row and row.role is Role.BASELINE and row.ratio for row in (first, second)):
            earlier, later = (row.ratio if row else None for row in (first, second))
            ratios.append(RatioChange(case, name, earlier, later, _moved(first, second)))
    return Changes(tuple(checks), tuple(ratios))


def worse(before: _Word | None, after: _Word | None) -> bool:
    """Say whether ``after`` stands later in its enumeration, whose first is the best, or is gone."""
    if before is None or after is None:
        return after is None
    order = list(type(after))
    return order.index(after) > order.index(before)


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
