"""What a search found, candidate by candidate: the rows of the table at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelmark.models.tuning.book import Book, Standing
from kernelmark.models.tuning.racing import Fate
from kernelmark.models.tuning.search import Outcome
from kernelmark.models.tuning.space import Candidate
from kernelmark.records import Check, Note, Ratio, Role, Row
from kernelmark.report.notes import note_text
from kernelmark.report.plain import one_line

__all__ = ["Found", "Line", "summarise_search", "verdict"]

_SHOWN = 200
"""Letters of an error that the table shows; all of it is in the records."""


@dataclass(frozen=True, slots=True)
class Line:
    """One candidate that was tried."""

    candidate: Candidate
    row: Row
    """Its last time and its ratio to the default, as far as it came."""
    fate: str
    """What became of it, in words."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one search found."""

    lines: tuple[Line, ...]
    best: Candidate
    """What won the race; the default, where nothing was certainly faster."""
    outcome: Outcome
    asked: int
    """How many candidates there were to be."""
    size: int
    """How many there are in the space."""
    folder: Path
    descriptor: Path

    @property
    def default(self) -> Candidate:
        """The schedule's own values."""
        return self.lines[0].candidate

    @property
    def chosen(self) -> Candidate:
        """What the descriptor holds: the best one, if it was confirmed."""
        return self.best if self.outcome.confirmed else self.default

    @property
    def ratio(self) -> Ratio | None:
        """The default's time over the best one's, as confirmed."""
        return self.outcome.confirmation

    @property
    def counts(self) -> dict[str, int]:
        """How many candidates had which kind of end."""
        kinds = Counter(_kind(line) for line in self.lines)
        return {"tried": len(self.lines), **dict(sorted(kinds.items()))}

    @property
    def rows(self) -> tuple[Row, ...]:
        """The table."""
        return tuple(line.row for line in self.lines)


def summarise_search(
    case_id: str, candidates: Sequence[Candidate], outcome: Outcome, book: Book
) -> tuple[Line, ...]:
    """Give a line for each candidate that was tried, in the order of the candidates.

    Where the time was up, the case's name says after how long: there may be another table when the search goes on.

    A row's ratio is the candidate's time over the default's in the last run that both were in; for the winner it is
    the flattering one of the search, and not the confirmed one.
    """
    standings = book.standings()
    so_far = "" if outcome.in_time else f" after {book.state.spent_s:.0f} s"
    case_id, lines = f"{case_id}: candidates{so_far}", []
    for candidate in candidates:
        checked = outcome.checked.get(candidate.label)
        if checked is not None:
            fate = _fate(candidate, checked, outcome)
            standing = standings.get(candidate.label)
            lines.append(Line(candidate, _row(case_id, candidate, checked, standing, fate), fate))
    return tuple(lines)


def verdict(found: Found) -> str:
    """Say in one or two sentences what the search came to."""
    ratio, best = found.ratio, found.best
    hurried = (
        "" if found.outcome.in_time else " The time was up before everything was tried; --resume goes on."
    )
    if best.number == 0:
        return f"Nothing was certainly faster than the default parameters; they are kept.{hurried}"
    if ratio is None:
        return (
            f"{best.label} won the race and could not be confirmed ({found.outcome.trouble.splitlines()[0]});"
            f" the default parameters are kept.{hurried}"
        )
    shown = f"{ratio.value:.3f}" + (f" [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio.low is not None else "")
    if not found.outcome.confirmed:
        return (
            f"{best.label} won the race, and measured once more it was {shown} times as fast as the default, which is"
            f" not certainly faster; the default parameters are kept.{hurried}"
        )
    return f"{best.label} is {shown} times as fast as the default, measured apart from the search.{hurried}"


def _row(case_id: str, candidate: Candidate, checked: Row, standing: Standing | None, fate: str) -> Row:
    role = Role.OURS if candidate.number == 0 else Role.BASELINE
    common = {"case": case_id, "role": role, "params": {}, "traceback": None}
    if standing is None or checked.check is Check.FAILED:
        return checked.model_copy(
            update={**common, "notes": (Note.free(fate),) if checked.check.comparable else ()}
        )
    timing = standing.row.timing
    # the samples stand in the rows of the race, once
    short = None if timing is None else timing.model_copy(update={"passes": (), "notes": ()})
    ratio = standing.to_default
    return standing.row.model_copy(
        update={
            **common,
            "timing": short,
            "ratio": None if ratio is None else ratio.model_copy(update={"block_ratios": ()}),
            "notes": (Note.free(fate),),
            "controls": (),
        }
    )


def _fate(candidate: Candidate, checked: Row, outcome: Outcome) -> str:
    race = outcome.race
    if checked.check is Check.FAILED:
        note = one_line(note_text(checked.note))
        return note if len(note) <= _SHOWN else f"{note[:_SHOWN]}..."
    if candidate.number == race.incumbent:
        if candidate.number == 0:
            return "the default, and kept"
        return "the winner, confirmed" if outcome.confirmed else "the winner of the race, not confirmed"
    if candidate.number == 0:
        return "the default" if outcome.confirmed else "the default, and kept"
    if "same" in checked.params:
        return f"the same code as {checked.params['same']}"
    if (drop := race.dropped.get(candidate.number)) is not None:
        return f"rung {drop.rung + 1}: {drop.fate}"
    return "not certainly slower than the winner, nor faster"


def _kind(line: Line) -> str:
    checked = line.row
    if checked.check is Check.FAILED:
        return "failed"
    if line.fate.startswith("the same code"):
        return "same_code"
    return "failed_later" if line.fate.endswith(Fate.FAILED) else "right"
