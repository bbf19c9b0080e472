"""What a search has found so far, read from the rows of its run: nothing is remembered that is not recorded.

So a search that is gone on with sees what it would have seen. Which candidate stays is the race's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernelmark.harness import Session
from kernelmark.models.tuning.space import DEFAULT
from kernelmark.models.tuning.state import State
from kernelmark.records import Check, Ratio, Role, Row
from kernelmark.report.notes import note_text
from kernelmark.stats import paired_ratio
from kernelmark.timing import block_samples

__all__ = ["Book", "Phase", "Standing"]


class Phase(StrEnum):
    """What a row of a search is about; every row says it among its parameters."""

    CHECK = "check"
    RACE = "race"
    CONFIRMATION = "confirmation"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one candidate stood in one run."""

    row: Row
    to_default: Ratio | None
    """Its time over the default's; ``None`` for the default itself."""


@dataclass(slots=True)
class Book:
    """The records of one search, and its state."""

    session: Session
    state: State
    folder: Path

    def record(self, rows: Iterable[Row], phase: Phase, *, seconds: float = 0.0) -> None:
        """Keep rows of one phase, and the time that they took."""
        for row in rows:
            self.session.record(row.model_copy(update={"params": {**row.params, "phase": phase.value}}))
        if seconds:
            self.state.spent_s += seconds
            self.state.write(self.folder)

    def checked(self) -> dict[str, Row]:
        """Give the row of each candidate that was checked, by label."""
        return {row.implementation: row for row in self._rows(Phase.CHECK)}

    def runs(self, phase: Phase, rung: int | None = None) -> tuple[tuple[Row, ...], ...]:
        """Give the rows of each run of several contestants, in order."""
        found: dict[str, list[Row]] = {}
        for row in self._rows(phase):
            if rung is None or row.params.get("rung") == rung:
                found.setdefault(row.case, []).append(row)
        return tuple(map(tuple, found.values()))

    def ratios(self, rung: int, incumbent: str) -> dict[str, Ratio]:
        """Give the ratios of a rung to this incumbent: a challenger's time over its."""
        return {
            row.implementation: row.ratio
            for rows in self.runs(Phase.RACE, rung)
            if _ours(rows) == incumbent
            for row in rows
            if row.ratio is not None
        }

    def failed(self, rung: int) -> dict[str, str]:
        """Give the contestants that failed in a rung, and why."""
        rows = (row for run in self.runs(Phase.RACE, rung) for row in run)
        return {row.implementation: note_text(row.note) for row in rows if row.check is Check.FAILED}

    def standings(self) -> dict[str, Standing]:
        """Give where each contestant stood when it was last measured, by label."""
        found: dict[str, Standing] = {}
        for rows in self.runs(Phase.RACE):
            timed = {row.implementation: row for row in rows if row.timing is not None}
            for name, row in timed.items():
                found[name] = Standing(row, _to_default(row, timed))
        return found

    def confirmation(self, winner: str) -> tuple[Row, ...]:
        """Give the rows of the winner's confirmation; empty where it has none."""
        return next((rows for rows in self.runs(Phase.CONFIRMATION) if _ours(rows) == winner), ())

    def _rows(self, phase: Phase) -> Sequence[Row]:
        return [row for row in self.session.rows if row.params.get("phase") == phase.value]


def _ours(rows: Sequence[Row]) -> str | None:
    return next((row.implementation for row in rows if row.role is Role.OURS), None)


def _to_default(row: Row, timed: Mapping[str, Row]) -> Ratio | None:
    default = timed.get(DEFAULT)
    if row.implementation == DEFAULT or default is None or default.timing is None or row.timing is None:
        return None
    if row.ratio is not None and default.role is Role.OURS:
        return row.ratio
    return paired_ratio(block_samples(default.timing), block_samples(row.timing))
