"""What a search keeps: what it was asked, the time it has taken, and the rows of its run; nothing else is remembered.

So a search that is gone on with sees what it would have seen. Which candidate stays is the race's to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from kernelmark.errors import RecordError, UsageError
from kernelmark.harness import Session
from kernelmark.models.tuning.space import DEFAULT
from kernelmark.records import Check, Ratio, Role, Row
from kernelmark.report import write_report
from kernelmark.report.notes import note_text
from kernelmark.stats import paired_ratio
from kernelmark.timing import block_samples

__all__ = ["STATE_FILE", "VERSION", "Book", "Phase", "Standing", "State", "read_state"]

STATE_FILE = "search.json"
VERSION = 1
"""Format history: 1: question, spent_s, candidates."""


@dataclass(slots=True)
class State:
    """The state of one search."""

    question: dict[str, str] = field(default_factory=dict)
    """What must be the same for what was judged to hold: each thing by name, in words."""
    spent_s: float = 0.0
    """Seconds that checking and racing have taken so far."""
    candidates: int = 0
    """How many candidates were asked for."""
    version: int = VERSION

    def write(self, folder: Path) -> None:
        """Keep it, all of it or what was there before.

        Raises:
            RecordError: it cannot be written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(
                f"cannot make the folder {folder}: {error.strerror}; choose another --out"
            ) from error
        write_report(folder / STATE_FILE, json.dumps(asdict(self), indent=1) + "\n")

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
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"--resume: there is no search in {folder} ({STATE_FILE} is not there)") from None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    try:
        value = json.loads(text)
        if value["version"] != VERSION:
            raise RecordError(f"{path}: version {value['version']}, and this program reads {VERSION}")
        state = State(**value)
        return State(
            {str(name): str(each) for name, each in state.question.items()},
            float(state.spent_s),
            int(state.candidates),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordError(
            f"{path}: no search's state ({type(error).__name__}: {error}); begin anew in another --out"
        ) from error


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
