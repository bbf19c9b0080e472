"""Makes the rows of a candidate that count, from those that its worker recorded and what was found outside it.

Pure: it gets rows and findings and gives rows and a status.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelmark.errors import TimingError
from kernelmark.kernelbench.candidates.job import CANDIDATE, Job
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelfile.handover import Outcome, SecondCheck
from kernelmark.kernelfile.judging import judged_rows, twice_checked, untimed_rows
from kernelmark.records import Check, Role, Row

__all__ = ["Verdict"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of a candidate, and the rows that say so."""

    job: Job
    status: Status
    message: str
    outcome: Outcome | None
    wall_s: float

    def rows(self, recorded: Sequence[Row], second: SecondCheck | None) -> tuple[tuple[Row, ...], Verdict]:
        """Give the rows that count, and the verdict that goes with them."""
        if self.status is not Status.VERIFIED or not recorded or second is None:
            known = (
                self if self.status is not Status.VERIFIED else self._with(Status.CRASH, "it left no record")
            )
            return known._failed(recorded), known
        if second.broken:
            why = f"its answers could not be checked outside its process: {second.broken}"
            return untimed_rows(recorded, why), self._with(Status.UNVERIFIED, why)
        if second.undone:
            second = replace(second, undone="", vacuous=second.undone)
        rows = twice_checked(recorded, second)
        notes = self.outcome.notes if self.outcome else {}
        try:
            rows = judged_rows(rows, notes, wall_s=self.wall_s)
        except TimingError as error:
            return untimed_rows(rows, str(error)), self._with(Status.UNVERIFIED, str(error))
        if second.wrong:
            return rows, self._with(
                Status.WRONG,
                f"right in its own process, and wrong where it was checked outside: {second.wrong}",
            )
        if not rows[0].check.comparable:
            return rows, self._with(Status.UNVERIFIED, rows[0].note)
        return rows, self

    def _with(self, status: Status, message: str) -> Verdict:
        return replace(self, status=status, message=message)

    def _failed(self, recorded: Sequence[Row]) -> tuple[Row, ...]:
        """Account for the candidate and its baselines where it failed; no row keeps a time or a ratio."""
        known = {row.implementation: row for row in recorded}
        mine = known.get(CANDIDATE)
        job = self.job
        evidence = self.outcome.traceback if self.outcome else None
        if mine is None or mine.check is not Check.FAILED:
            mine = self._row(CANDIDATE, Role.OURS, Check.FAILED, self.message or self.status)
            mine = mine.model_copy(update={"traceback": evidence or None})
        rows = [mine]
        for baseline in job.settings.baselines:
            row = known.get(baseline.value)
            if row is None or row.timing is not None:
                row = self._row(
                    baseline.value, Role.BASELINE, Check.UNVERIFIED, "not timed: the candidate failed"
                )
            rows.append(row)
        return tuple(rows)

    def _row(self, name: str, role: Role, check: Check, note: str) -> Row:
        job = self.job
        return Row(
            case=job.case_id,
            implementation=name,
            role=role,
            check=check,
            note=note,
            params={"candidate": job.name, "problem": job.problem, "inputs": job.inputs},
            seed=job.settings.seed,
        )
