"""Rows in the order in which they are read: by op, then by case, each in the order of its first row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from kernelmark.records import Row
from kernelmark.units import TimeScale

__all__ = ["CaseRows", "OpRows", "by_op"]


@dataclass(frozen=True, slots=True)
class CaseRows:
    """The rows of one case."""

    case: str
    rows: tuple[Row, ...]

    @property
    def params(self) -> dict[str, Any]:
        """What the case is called with."""
        return self.rows[0].params

    @property
    def scale(self) -> TimeScale:
        """The one unit for the times of this case, so that they can be compared at a glance."""
        return TimeScale.fit(row.timing.device_busy.median_ns for row in self.rows if row.timing)


@dataclass(frozen=True, slots=True)
class OpRows:
    """The cases of one op; ``op`` is ``None`` for what was compared without one."""

    op: str | None
    cases: tuple[CaseRows, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows of the op."""
        return tuple(chain.from_iterable(case.rows for case in self.cases))


def by_op(rows: Iterable[Row]) -> tuple[OpRows, ...]:
    """Group ``rows``; nothing is left out and nothing is sorted."""
    ops: dict[str | None, dict[str, list[Row]]] = {}
    for row in rows:
        ops.setdefault(row.op, {}).setdefault(row.case, []).append(row)
    return tuple(
        OpRows(op, tuple(CaseRows(case, tuple(of_case)) for case, of_case in cases.items()))
        for op, cases in ops.items()
    )
