"""The order of a search: check every candidate, race those that are right, confirm the winner apart from the search.

Asks a judge and writes a book. Every decision follows from what the book holds, so that a search that was cut short
is gone on with by starting it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from kernelmark.errors import CrashedError, KernelmarkError, VerificationError
from kernelmark.models.tuning.book import Book, Phase
from kernelmark.models.tuning.judging import Judge, codes_of
from kernelmark.models.tuning.racing import CONFIRMATION, RUNGS, Race, groups
from kernelmark.models.tuning.space import DEFAULT, Candidate
from kernelmark.records import Check, Note, Ratio, Role, Row
from kernelmark.report.notes import note_text
from kernelmark.units import format_ratio
from torchsched.failures import Stage, failure

__all__ = ["Outcome", "Search"]

BATCH = 8
"""Candidates of one worker. Starting one costs 3 s (the model, the first import), and each candidate about one."""

CHECK_SHARE = 0.4
"""Of the budget, for checking: what is left must do for the race, or nothing is found of all that was right."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search came to."""

    race: Race
    checked: Mapping[str, Row]
    in_time: bool
    """Whether everything was done that was to be done within the budget."""
    confirmation: Ratio | None = None
    """The default's time over the winner's, in a run apart; ``None`` where the default itself won."""
    trouble: str = ""
    """Why the winner could not be confirmed, where it is not for its time."""

    @property
    def confirmed(self) -> bool:
        """Whether the winner is certainly faster than the default."""
        ratio = self.confirmation
        return ratio is not None and ratio.low is not None and ratio.low > 1


@dataclass(slots=True)
class Search:
    """One search."""

    case_id: str
    candidates: Sequence[Candidate]
    budget_s: float
    judge: Judge
    book: Book
    tell: Callable[[str], None] = lambda line: None
    clock: Callable[[], float] = time.monotonic
    _in_time: bool = field(default=True, init=False)

    def carry_out(self) -> Outcome:
        """Search.

        Raises:
            VerificationError: the default's answer is wrong, so that there is nothing to compare with.
            ModelError: the default does not get through the compiler.
            CrashedError: the default's process died.
            TimingError: the instrument cannot vouch for a reading.
        """
        checked = self._check()
        right = [
            each.number
            for each in self.candidates
            if (row := checked.get(each.label)) is not None
            and row.check.comparable
            and "same" not in row.params
        ]
        self.tell(f"checked {len(checked)} of {len(self.candidates)}: {_counts(checked.values())}")
        race = self._race(Race(0, tuple(number for number in right if number != 0)))
        ratio, trouble = (None, "") if race.incumbent == 0 else self._confirm(race.incumbent)
        return Outcome(race, checked, self._in_time, ratio, trouble)

    # --- checking -------------------------------------------------------------------------------------

    def _check(self) -> dict[str, Row]:
        while True:
            checked = self.book.checked()
            if (default := checked.get(DEFAULT)) is not None and default.check is Check.FAILED:
                raise _unusable(default)
            left = [each for each in self.candidates if each.label not in checked]
            if not left:
                return checked
            if checked and self.book.state.spent_s >= CHECK_SHARE * self.budget_s:
                self._in_time = False
                return checked
            begin = self.clock()
            rows = self.judge.check(
                f"{self.case_id}: checked", left[:BATCH], codes_of(list(checked.values()))
            )
            self.book.record(rows, Phase.CHECK, seconds=self.clock() - begin)
            for row in rows:
                if row.check is Check.FAILED:
                    self.tell(f"{row.implementation}: {note_text(row.note).splitlines()[0]}")

    # --- racing ---------------------------------------------------------------------------------------

    def _race(self, race: Race) -> Race:
        for rung in range(len(RUNGS)):
            if not race.alive:
                break
            race, whole = self._rung(rung, race)
            if not whole:
                break
        return race

    def _rung(self, rung: int, race: Race) -> tuple[Race, bool]:
        """Measure all that are left; give how they stand, and whether there was time for each of them."""
        while True:
            race = self._without_failed(rung, race)
            ratios = self.book.ratios(rung, self._label(race.incumbent))
            left = [number for number in race.alive if self._label(number) not in ratios]
            out_of_time = bool(left) and self.book.state.spent_s >= self.budget_s
            if out_of_time or not left:
                break
            self._measure(rung, race.incumbent, groups(left)[0])
        found = {
            number: ratios[self._label(number)] for number in race.alive if self._label(number) in ratios
        }
        last = out_of_time or rung == len(RUNGS) - 1
        after = race.after(rung, found, last=last)
        self._in_time = self._in_time and not out_of_time
        self.tell(
            f"rung {rung + 1}: {len(found)} measured, {len(after.alive)} left;"
            f" best so far: {self._label(after.incumbent)}{_shown(found.get(after.incumbent))}"
        )
        return after, not out_of_time

    def _without_failed(self, rung: int, race: Race) -> Race:
        failed = self.book.failed(rung)
        if DEFAULT in failed:
            raise VerificationError(
                f"the default parameters were right when they were checked, and failed when they were measured:"
                f" {failed[DEFAULT]}"
            )
        for number in (*race.alive, race.incumbent):
            if self._label(number) in failed:
                race = race.without(number, rung)
        return race

    def _measure(self, rung: int, incumbent: int, group: Sequence[int]) -> None:
        numbers = [incumbent, *([0] if incumbent else []), *group]
        taken = {rows[0].case for rows in self.book.runs(Phase.RACE)}
        cases = (f"{self.case_id}: rung {rung + 1}, run {number}" for number in count(1))
        case_id = next(each for each in cases if each not in taken)
        facts = {"phase": Phase.RACE.value, "rung": rung}
        begin = self.clock()
        measured = self.judge.measure(
            case_id, [self.candidates[number] for number in numbers], RUNGS[rung], facts
        )
        seconds = self.clock() - begin
        if measured.rows:
            self.book.record(measured.rows, Phase.RACE, seconds=seconds)
            return
        culprit = measured.at if measured.at is not None else group[0] if len(group) == 1 else None
        if culprit == 0:
            raise CrashedError(f"the default parameters failed while they were measured: {measured.death}")
        if culprit is not None:
            row = Row(
                case=case_id,
                implementation=self._label(culprit),
                role=Role.BASELINE,
                check=Check.FAILED,
                note=Note.free(measured.death),
                params=facts,
            )
            self.book.record([row], Phase.RACE, seconds=seconds)
            return
        self.book.record([], Phase.RACE, seconds=seconds)
        for number in group:  # one of them killed the others' run: each has one to itself
            self._measure(rung, incumbent, [number])

    # --- confirming -----------------------------------------------------------------------------------

    def _confirm(self, winner: int) -> tuple[Ratio | None, str]:
        """Measure the winner next to the default once more, in a process that has seen none of the search."""
        label = self._label(winner)
        rows = self.book.confirmation(label)
        if not rows:
            self.tell(f"confirming {label}")
            contestants = [self.candidates[winner], self.candidates[0]]
            facts = {"phase": Phase.CONFIRMATION.value}
            measured = self.judge.measure(
                f"{self.case_id}: confirmation of {label}", contestants, CONFIRMATION, facts
            )
            if not measured.rows:
                return None, measured.death
            rows = measured.rows
            self.book.record(rows, Phase.CONFIRMATION)
        if failed := [row for row in rows if row.check is Check.FAILED]:
            return None, f"{failed[0].implementation}: {note_text(failed[0].note)}"
        return next((row.ratio for row in rows if row.implementation == DEFAULT), None), ""

    def _label(self, number: int) -> str:
        return self.candidates[number].label


def _unusable(row: Row) -> KernelmarkError:
    """Give the error for a default that cannot be compared with, of the class that its stage names."""
    message = f"the default parameters fail, so that there is nothing to compare with; {note_text(row.note)}"
    stage = row.params.get("stage")
    if row.params.get("died"):
        return CrashedError(message)
    return failure(Stage(stage), message) if stage in list(Stage) else VerificationError(message)


def _counts(given: Iterable[Row]) -> str:
    rows = list(given)
    same = sum("same" in row.params for row in rows)
    failed = [row for row in rows if row.check is Check.FAILED]
    stopped = sum("stage" in row.params for row in failed)
    told = [f"{len(rows) - same - len(failed)} right"]
    told += [f"{same} the same code as another"] if same else []
    told += [f"{len(failed) - stopped} wrong"] if len(failed) > stopped else []
    told += [f"{stopped} without an answer"] if stopped else []
    return ", ".join(told)


def _shown(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    return f", {format_ratio(ratio.value, ratio.low, ratio.high)} of the time of the incumbent before it"
