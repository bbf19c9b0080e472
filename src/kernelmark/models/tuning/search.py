"""The order of a search: check every candidate, race those that are right, confirm the winner apart from the search.

The race is successive halving, in which an interval decides before a rank does. A rung measures every challenger that
is left next to the incumbent. A challenger whose interval lies above 1 takes certainly longer and leaves; one whose
interval lies below 1 takes the incumbent's place. Of the rest, the better half goes on to the next rung, which has
three times the samples. Every decision follows from what the book holds, so that a search that was cut short is gone
on with by starting it again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count

from kernelmark.errors import CrashedError, KernelmarkError, VerificationError
from kernelmark.models.tuning.book import Book, Phase
from kernelmark.models.tuning.judging import ProcessJudge
from kernelmark.models.tuning.space import DEFAULT, Candidate
from kernelmark.records import Check, Note, Ratio, Role, Row
from kernelmark.report.notes import note_text
from kernelmark.timing import Budget
from kernelmark.units import format_ratio
from torchsched.failures import Stage, failure

__all__ = ["CONFIRMATION", "GROUP", "RUNGS", "Drop", "Fate", "Outcome", "Race", "Search", "groups"]

RUNGS = (
    Budget(warmup_ms=5, sample_ms=20, prepare_ms=100, min_count=8, max_count=40, blocks=4),
    Budget(warmup_ms=10, sample_ms=60, prepare_ms=300, min_count=16, max_count=80, blocks=8),
    Budget(warmup_ms=25, sample_ms=180, prepare_ms=900, min_count=24, max_count=160, blocks=12),
)
"""What each implementation is given in a run of each rung. Half stay and each gets three times as much, so that a
rung costs half as much again as the one before it. Four blocks are the fewest that give an interval worth asking:
Student's factor is 12.7 with two blocks, 4.3 with three and 3.2 with four."""

CONFIRMATION = Budget(warmup_ms=25, sample_ms=300, prepare_ms=1500, min_count=40, max_count=200, blocks=20)
"""What the winner and the default are given at the end, in a process of their own."""

GROUP = 4
"""Challengers of one run. Incumbent and default take part in each, so that few would measure those most of the time,
and many would let the machine drift within a block."""


class Fate(StrEnum):
    """Why a challenger left the race."""

    SLOWER = "certainly slower than the incumbent"
    BEHIND = "not in the better half"
    FAILED = "failed while it was measured"


@dataclass(frozen=True, slots=True)
class Drop:
    """One challenger's end."""

    fate: Fate
    rung: int
    """Counted from 0."""


@dataclass(frozen=True, slots=True)
class Race:
    """How a race stands; candidates are named by their labels."""

    incumbent: str = DEFAULT
    alive: tuple[str, ...] = ()
    """The challengers, without the incumbent."""
    dropped: Mapping[str, Drop] = field(default_factory=dict)

    def after(self, rung: int, ratios: Mapping[str, Ratio], *, last: bool = False) -> Race:
        """Give the standing after a rung.

        Args:
            rung: Which it was, from 0.
            ratios: Of the challengers that were measured: their time over the incumbent's.
            last: Whether no rung follows, so that the undecided need not be told apart.
        """
        measured = [each for each in self.alive if each in ratios]
        by_value = sorted(measured, key=lambda each: ratios[each].value)
        best = next((each for each in by_value if (ratios[each].high or 1.0) < 1.0), None)
        bar = 1.0 if best is None else ratios[best].high or 1.0
        others = [each for each in by_value if each != best]
        slower = [each for each in others if (ratios[each].low or 0.0) > bar]
        left = [each for each in others if each not in slower]
        behind = [] if last else left[math.ceil(len(left) / 2) :]
        fates = dict.fromkeys(slower, Fate.SLOWER) | dict.fromkeys(behind, Fate.BEHIND)
        if best is not None and self.incumbent != DEFAULT:
            fates[self.incumbent] = Fate.SLOWER
        return Race(
            self.incumbent if best is None else best,
            tuple(each for each in self.alive if each not in fates and each != best),
            {**self.dropped, **{each: Drop(fate, rung) for each, fate in fates.items()}},
        )

    def without(self, label: str, rung: int) -> Race:
        """Give the standing where a contestant failed; the default takes the place of an incumbent that did."""
        return Race(
            DEFAULT if label == self.incumbent else self.incumbent,
            tuple(each for each in self.alive if each != label),
            {**self.dropped, label: Drop(Fate.FAILED, rung)},
        )


def groups(labels: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Part the challengers of a rung into runs of about the same size."""
    count = math.ceil(len(labels) / GROUP)
    return tuple(tuple(labels[start::count]) for start in range(count))


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
    judge: ProcessJudge
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
        self.tell(f"checked {len(checked)} of {len(self.candidates)}: {_counts(checked.values())}")
        right = _right(checked).keys()
        order = [each.label for each in self.candidates]
        race = self._race(Race(alive=tuple(each for each in order if each in right and each != DEFAULT)))
        ratio, trouble = (None, "") if race.incumbent == DEFAULT else self._confirm(race.incumbent)
        return Outcome(race, checked, self._in_time, ratio, trouble)

    def _check(self) -> dict[str, Row]:
        while True:
            checked = self.book.checked()
            if (default := checked.get(DEFAULT)) is not None and default.check is Check.FAILED:
                raise _unusable(default)
            left = [each for each in self.candidates if each.label not in checked]
            late = bool(checked) and self.book.state.spent_s >= CHECK_SHARE * self.budget_s
            if not left or late:
                self._in_time = not left
                return checked
            begin = self.clock()
            known = {str(row.params["code"]): label for label, row in _right(checked).items()}
            rows = self.judge.check(f"{self.case_id}: checked", left[:BATCH], known)
            self.book.record(rows, Phase.CHECK, seconds=self.clock() - begin)
            for row in rows:
                if row.check is Check.FAILED:
                    self.tell(f"{row.implementation}: {note_text(row.note).splitlines()[0]}")

    def _race(self, race: Race) -> Race:
        whole = True
        for rung in range(len(RUNGS)):
            if race.alive and whole:
                race, whole = self._rung(rung, race)
        return race

    def _rung(self, rung: int, race: Race) -> tuple[Race, bool]:
        """Measure all that are left; give how they stand, and whether there was time for each of them."""
        while True:
            failed = self.book.failed(rung)
            if DEFAULT in failed:
                raise VerificationError(
                    "the default parameters were right when they were checked, and failed when they were measured:"
                    f" {failed[DEFAULT]}"
                )
            for label in {*race.alive, race.incumbent} & failed.keys():
                race = race.without(label, rung)
            ratios = self.book.ratios(rung, race.incumbent)
            left = [label for label in race.alive if label not in ratios]
            whole = not left or self.book.state.spent_s < self.budget_s
            if not left or not whole:
                break
            self._measure(rung, race.incumbent, groups(left)[0])
        after = race.after(rung, ratios, last=not whole or rung == len(RUNGS) - 1)
        self._in_time = self._in_time and whole
        told = f"rung {rung + 1}: {len(race.alive) - len(left)} measured, {len(after.alive)} left;"
        told += f" best so far: {after.incumbent}"
        if after.incumbent != race.incumbent:
            best = ratios[after.incumbent]
            shown = format_ratio(best.value, best.low, best.high)
            told += f", {shown} of the time of the incumbent before it"
        self.tell(told)
        return after, whole

    def _measure(self, rung: int, incumbent: str, group: Sequence[str]) -> None:
        labels = [*dict.fromkeys((incumbent, DEFAULT)), *group]
        taken = self.book.runs(Phase.RACE)
        cases = (f"{self.case_id}: rung {rung + 1}, run {number}" for number in count(1))
        case_id = next(each for each in cases if each not in taken)
        facts, begin = {"rung": rung}, self.clock()
        measured = self.judge.measure(case_id, self._named(labels), RUNGS[rung], facts)
        rows, seconds = measured.rows, self.clock() - begin
        culprit = measured.at or (group[0] if len(group) == 1 else None)
        if not rows and culprit == DEFAULT:
            raise CrashedError(f"the default parameters failed while they were measured: {measured.death}")
        if not rows and culprit is not None:
            failed = Row(
                case=case_id,
                implementation=culprit,
                role=Role.BASELINE,
                check=Check.FAILED,
                note=Note.error(CrashedError(measured.death)),
                params=facts,
            )
            rows = (failed,)
        self.book.record(rows, Phase.RACE, seconds=seconds)
        for label in () if rows else group:  # one of them killed the others' run: each has one to itself
            self._measure(rung, incumbent, [label])

    def _confirm(self, winner: str) -> tuple[Ratio | None, str]:
        """Measure the winner next to the default once more, in a process that has seen none of the search."""
        rows = self.book.confirmation(winner)
        if not rows:
            self.tell(f"confirming {winner}")
            case_id = f"{self.case_id}: confirmation of {winner}"
            measured = self.judge.measure(case_id, self._named([winner, DEFAULT]), CONFIRMATION, {})
            rows = measured.rows
            if not rows:
                return None, measured.death
            self.book.record(rows, Phase.CONFIRMATION)
        if failed := [row for row in rows if row.check is Check.FAILED]:
            return None, f"{failed[0].implementation}: {note_text(failed[0].note)}"
        return next((row.ratio for row in rows if row.implementation == DEFAULT), None), ""

    def _named(self, labels: Sequence[str]) -> list[Candidate]:
        by_label = {each.label: each for each in self.candidates}
        return [by_label[label] for label in labels]


def _right(checked: Mapping[str, Row]) -> dict[str, Row]:
    """Give those with a right answer and code that no other has, by label."""
    return {each: row for each, row in checked.items() if row.check.comparable and "same" not in row.params}


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
    counts = {"the same code as another": same, "wrong": len(failed) - stopped, "without an answer": stopped}
    told = [f"{count} {what}" for what, count in counts.items() if count]
    return ", ".join([f"{len(rows) - same - len(failed)} right", *told])
