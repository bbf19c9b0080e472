"""What a search keeps: what it was asked, the time it has taken, and the rows of its run; nothing else is remembered.

So a search that is gone on with sees what it would have seen. Which candidate stays is the race's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernelmark.errors import RecordError, UsageError
from kernelmark.harness import Session
from kernelmark.models.tuning.space import DEFAULT, write_below
from kernelmark.records import Check, Ratio, Role, Row
from kernelmark.report.notes import note_text
from kernelmark.stats import paired_ratio
from kernelmark.timing import block_samples

__all__ = ["STATE_FILE", "Book", "Phase", "State", "read_state"]

STATE_FILE = "search.json"


class State(BaseModel):
    """The state of one search."""

    model_config = ConfigDict(extra="forbid")

    question: dict[str, str] = Field(default_factory=dict)
    """What must be the same for what was judged to hold: each thing by name, in words."""
    spent_s: float = 0.0
    """Seconds that checking and racing have taken so far."""
    candidates: int = 0
    """How many candidates were asked for."""
    version: Literal[1] = 1
    """Format history: 1: question, spent_s, candidates."""

    def write(self, folder: Path) -> None:
        """Keep it, all of it or what was there before.

        Raises:
            RecordError: it cannot be written.
        """
        write_below(folder / STATE_FILE, self.model_dump_json(indent=1) + "\n", "choose another --out")

    def require_same(self, question: Mapping[str, str], folder: Path) -> None:
        """Refuse to go on with another search than the one that was begun.

        Raises:
            UsageError: something differs; the message names it, and both values.
        """
        for name in {**self.question, **question}:
            before, now = self.question.get(name, "nothing"), question.get(name, "nothing")
            if before != now:
                raise UsageError(
                    f"--resume: the search in {folder} was begun with {name} {before}, and this is {now};"
                    " give what it was begun with, or another --out"
                )


def read_state(folder: Path) -> State:
    """Read what :meth:`State.write` wrote.

    Raises:
        UsageError: there is no search in the folder.
        RecordError: the file is malformed, or of another version.
    """
    path = folder / STATE_FILE
    try:
        return State.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"--resume: there is no search in {folder} ({STATE_FILE} is not there)") from None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        told = f"{'.'.join(map(str, first['loc']))}: {first['msg']}, and is {first['input']!r}".lstrip(": ")
        raise RecordError(f"{path}: no search's state ({told}); begin anew in another --out") from error


class Phase(StrEnum):
    """What a row of a search is about; every row says it among its parameters."""

    CHECK = "check"
    RACE = "race"
    CONFIRMATION = "confirmation"
    SUMMARY = "summary"


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

    def runs(self, phase: Phase, rung: int | None = None) -> dict[str, list[Row]]:
        """Give the rows of each run of several contestants, in order, by the name of its case."""
        found: dict[str, list[Row]] = {}
        for row in self._rows(phase):
            if rung is None or row.params.get("rung") == rung:
                found.setdefault(row.case, []).append(row)
        return found

    def ratios(self, rung: int, incumbent: str) -> dict[str, Ratio]:
        """Give the ratios of a rung to this incumbent: a challenger's time over its."""
        runs = [rows for rows in self.runs(Phase.RACE, rung).values() if _ours(rows) == incumbent]
        return {row.implementation: row.ratio for rows in runs for row in rows if row.ratio is not None}

    def failed(self, rung: int) -> dict[str, str]:
        """Give the contestants that failed in a rung, and why."""
        rows = (row for row in self._rows(Phase.RACE) if row.params.get("rung") == rung)
        return {row.implementation: note_text(row.note) for row in rows if row.check is Check.FAILED}

    def standings(self) -> dict[str, Row]:
        """Give the last row with a time of each contestant, by label; its ratio is its time over the default's."""
        found: dict[str, Row] = {}
        for rows in self.runs(Phase.RACE).values():
            default = next((row for row in rows if row.implementation == DEFAULT), None)
            for row in rows:
                if row.timing is not None:
                    found[row.implementation] = row.model_copy(update={"ratio": _to_default(row, default)})
        return found

    def confirmation(self, winner: str) -> Sequence[Row]:
        """Give the rows of the winner's confirmation; empty where it has none."""
        return next((rows for rows in self.runs(Phase.CONFIRMATION).values() if _ours(rows) == winner), ())

    def _rows(self, phase: Phase) -> Sequence[Row]:
        return [row for row in self.session.rows if row.params.get("phase") == phase.value]


def _ours(rows: Sequence[Row]) -> str | None:
    return next((row.implementation for row in rows if row.role is Role.OURS), None)


def _to_default(row: Row, default: Row | None) -> Ratio | None:
    if row is default or default is None or default.timing is None or row.timing is None:
        return None
    if row.ratio is not None and default.role is Role.OURS:
        return row.ratio
    return paired_ratio(block_samples(default.timing), block_samples(row.timing))
