"""Says what became of a candidate, and makes the rows that count from those that its worker recorded.

Pure: it gets a worker's end, rows and findings, and gives rows and a status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernelmark.errors import (
    DeviceMemoryError,
    ImplementationError,
    ModelFileError,
    TimingError,
    UnavailableError,
    UsageError,
    VerificationError,
)
from kernelmark.isolation import Death, Ended, ForeignError
from kernelmark.kernelbench.candidates.job import CANDIDATE, Job
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelfile.handover import SecondCheck
from kernelmark.kernelfile.judging import judged_rows, twice_checked, untimed_rows
from kernelmark.records import Check, Note, Role, Row
from kernelmark.report.notes import note_text

__all__ = ["Verdict", "status_of"]

Notes = dict[str, list[str]]

_LACKING = (
    "CUDA_HOME",
    "Ninja is required",
    "nvcc",
    "No CUDA GPUs are available",
    "Torch not compiled with CUDA",
)
"""What torch says, in errors of no class of their own, where a compiler or a device is missing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of a candidate, and the rows that say so."""

    job: Job
    status: Status
    message: str = ""
    wall_s: float = 0.0
    """What its worker took, in seconds by the parent's clock."""
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What the worker found besides, by row."""
    evidence: str = ""
    """The traceback of what it raised."""

    @classmethod
    def of(cls, job: Job, ended: Ended[Notes], recorded: Sequence[Row]) -> Verdict:
        """Say what a worker's end means, as far as it goes without looking at its answers."""
        if ended.death is not None:
            return cls(job, *_of_death(ended.death, ended), ended.wall_s)
        if ended.failure is not None:
            failed = {row.implementation for row in recorded if row.check is Check.FAILED}
            status = status_of(ended.failure.error, failed)
            return cls(job, status, ended.message, ended.wall_s, evidence=ended.failure.traceback)
        return cls(job, Status.VERIFIED, "", ended.wall_s, ended.answer or {})

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
        try:
            rows = judged_rows(rows, self.notes, wall_s=self.wall_s)
        except TimingError as error:
            return untimed_rows(rows, str(error)), self._with(Status.UNVERIFIED, str(error))
        if second.wrong:
            return rows, self._with(
                Status.WRONG,
                f"right in its own process, and wrong where it was checked outside: {second.wrong}",
            )
        if not rows[0].check.comparable:
            return rows, self._with(Status.UNVERIFIED, note_text(rows[0].note))
        return rows, self

    def _with(self, status: Status, message: str) -> Verdict:
        return replace(self, status=status, message=message)

    def _failed(self, recorded: Sequence[Row]) -> tuple[Row, ...]:
        """Account for the candidate and its baselines where it failed; no row keeps a time or a ratio."""
        known = {row.implementation: row for row in recorded}
        mine = known.get(CANDIDATE)
        if mine is None or mine.check is not Check.FAILED:
            mine = self._row(CANDIDATE, Role.OURS, Check.FAILED, self.message or self.status)
            mine = mine.model_copy(update={"traceback": self.evidence or None})
        rows = [mine]
        for baseline in self.job.settings.baselines:
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
            note=Note.free(note),
            params={"candidate": job.name, "problem": job.problem, "inputs": job.inputs},
            seed=job.settings.seed,
        )


def status_of(error: BaseException, failed: frozenset[str] | set[str] = frozenset()) -> Status:
    """Say what an error of a worker means for its candidate.

    Args:
        error: As it arrives from the worker.
        failed: The rows that were recorded as wrong; a baseline's failure is not the candidate's.
    """
    match error:
        case ModelFileError():
            return _of_loading(error)
        case DeviceMemoryError() | MemoryError():
            return Status.OUT_OF_MEMORY
        case ImplementationError():
            return Status.COMPILE_FAILURE if _is_of_a_compiler(error) else Status.RUN_FAILURE
        case VerificationError():
            return Status.WRONG if not failed or CANDIDATE in failed else Status.UNVERIFIED
        case TimingError():
            return Status.UNVERIFIED
        case UnavailableError() | UsageError():
            return Status.UNAVAILABLE
    return Status.CRASH


def _of_loading(error: ModelFileError) -> Status:
    said = str(error.__cause__ or error)
    if isinstance(error.__cause__, ModuleNotFoundError) or any(word in said for word in _LACKING):
        return Status.UNAVAILABLE
    return Status.COMPILE_FAILURE if _is_of_a_compiler(error) else Status.IMPORT_FAILURE


def _is_of_a_compiler(error: BaseException) -> bool:
    """Whether Triton's compiler refused a kernel, or torch could not build an extension, which has no class."""
    cause = error.__cause__
    if isinstance(cause, ForeignError) and cause.is_a("CompilationError"):
        return True
    return "Error building extension" in str(cause or error)


def _of_death(death: Death, ended: Ended[Notes]) -> tuple[Status, str]:
    if death.timed_out:
        return Status.TIMEOUT, _at(str(death), ended)
    told = _at(str(death), ended) + (f": {ended.last_words}" if ended.last_words else "")
    return (Status.OUT_OF_MEMORY if death.killed else Status.CRASH), told


def _at(death: str, ended: Ended[Notes]) -> str:
    return f"{death}, while {ended.stage}" if ended.stage else death
