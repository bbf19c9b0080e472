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
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count

from kernelmark.errors import CrashedError, KernelmarkError, VerificationError
from kernelmark.models.tuning.book import Book, Phase
from kernelmark.models.tuning.judging import ProcessJudge, codes_of
from kernelmark.models.tuning.space import DEFAULT, Candidate
from kernelmark.records import Check, Note, Ratio, Role, Row
from kernelmark.report.notes import note_text
from kernelmark.timing import Budget
from kernelmark.units import format_ratio
from torchsched.failures import Stage, failure

__all__ = [
    "CONFIRMATION",
    "GROUP",
    "PROTOCOL_NOTE",
    "RUNGS",
    "Drop",
    "Fate",
    "Outcome",
    "Race",
    "Search",
    "groups",
]

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

_KEPT = 1 / 2

PROTOCOL_NOTE = (
    "the protocol is that of the confirmation; the runs of the race are shorter:"
    f" {', '.join(f'{rung.blocks} blocks of up to {rung.max_count} samples' for rung in RUNGS)}"
)
"""What a reader of the whole run must know: its header holds one protocol."""


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
    """How a race stands. Candidates are numbers, and 0 is the default."""

    incumbent: int = 0
    alive: tuple[int, ...] = ()
    """The challengers, without the incumbent."""
    dropped: Mapping[int, Drop] = field(default_factory=dict)

    def after(self, rung: int, ratios: Mapping[int, Ratio], *, last: bool = False) -> Race:
        """Give the standing after a rung.

        Args:
            rung: Which it was, from 0.
            ratios: Of the challengers that were measured: their time over the incumbent's.
            last: Whether no rung follows, so that the undecided need not be told apart.
        """
        measured = {number: ratios[number] for number in self.alive if number in ratios}
        better = {
            number: each for number, each in measured.items() if each.high is not None and each.high < 1
        }
        best = min(better, key=lambda number: better[number].value, default=None)
        bar = 1.0 if best is None else better[best].high or 1.0
        slower = [
            number
            for number, each in measured.items()
            if number != best and each.low is not None and each.low > bar
        ]
        left = [number for number in measured if number != best and number not in slower]
        keep = len(left) if last else math.ceil(len(left) * _KEPT)
        ranked = sorted(left, key=lambda number: measured[number].value)
        behind = ranked[keep:]
        drops = {
            **self.dropped,
            **{number: Drop(Fate.SLOWER, rung) for number in slower},
            **{number: Drop(Fate.BEHIND, rung) for number in behind},
        }
        if best is not None and self.incumbent != 0:
            drops[self.incumbent] = Drop(Fate.SLOWER, rung)
        gone = {*slower, *behind, best}
        return Race(
            self.incumbent if best is None else best,
            tuple(number for number in self.alive if number not in gone),
            drops,
        )

    def without(self, number: int, rung: int) -> Race:
        """Give the standing where a contestant failed; the default takes the place of an incumbent that did."""
        return replace(
            self,
            incumbent=0 if number == self.incumbent else self.incumbent,
            alive=tuple(each for each in self.alive if each != number),
            dropped={**self.dropped, number: Drop(Fate.FAILED, rung)},
        )


def groups(numbers: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Part the challengers of a rung into runs of about the same size."""
    count = math.ceil(len(numbers) / GROUP)
    return tuple(tuple(numbers[start::count]) for start in range(count))


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
                note=Note.error(CrashedError(measured.death)),
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
    counts = {
        "the same code as another": same,
        "wrong": len(failed) - stopped,
        "without an answer": stopped,
    }
    told = [f"{count} {what}" for what, count in counts.items() if count]
    return ", ".join([f"{len(rows) - same - len(failed)} right", *told])


def _shown(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    return f", {format_ratio(ratio.value, ratio.low, ratio.high)} of the time of the incumbent before it"
