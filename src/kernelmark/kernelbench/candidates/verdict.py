"""Says what became of a candidate, and makes the rows that count from those that its worker recorded.

Pure: it gets a worker's end, rows and findings, and gives rows and a status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernelmark.errors import (
    ImplementationError,
    KernelmarkError,
    ModelFileError,
    TimingError,
    VerificationError,
)
from kernelmark.isolation import Death, Ended, ForeignError
from kernelmark.kernelbench.candidates.job import CANDIDATE, Job
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelfile.handover import SecondCheck
from kernelmark.kernelfile.judging import judged_rows, twice_checked, untimed_rows
from kernelmark.records import Cause, Check, Fate, Note, Role, Row, Stage
from kernelmark.report.notes import note_text

__all__ = ["Verdict", "fate_of"]

Notes = dict[str, list[str]]

_LACKING = (
    "CUDA_HOME",
    "Ninja is required",
    "nvcc",
    "No CUDA GPUs are available",
    "Torch not compiled with CUDA",
)
"""What torch says, in errors of no class of their own, where a compiler or a device is missing."""


_GOOD = Fate(Stage.CHECK, None, Check.VERIFIED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of a candidate, and the rows that say so."""

    job: Job
    fate: Fate = _GOOD
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
            fate = Fate(_stage(ended), _cause(ended.death))
            last = f": {ended.last_words}" if ended.last_words and fate.cause is not Cause.LIMIT else ""
            return cls(job, fate, f"{ended.death} (at {fate.stage}){last}", ended.wall_s)
        if ended.failure is not None:
            failed = {row.implementation for row in recorded if row.check is Check.FAILED}
            fate = fate_of(ended.failure.error, failed)
            if fate.cause is Cause.MEMORY:  # which runs out anywhere
                fate = replace(fate, stage=_stage(ended))
            return cls(job, fate, ended.message, ended.wall_s, evidence=ended.failure.traceback)
        return cls(job, _GOOD, "", ended.wall_s, ended.answer or {})

    @property
    def status(self) -> Status:
        """The word for it."""
        return Status.of(self.fate)

    def rows(self, recorded: Sequence[Row], second: SecondCheck | None) -> tuple[tuple[Row, ...], Verdict]:
        """Give the rows that count, and the verdict that goes with them."""
        if not self.fate.done or not recorded or second is None:
            known = self._with(Stage.TIME, Cause.DIED, "it left no record") if self.fate.done else self
            return known._failed(recorded), known
        if second.broken:
            why = f"its answers could not be checked outside its process: {second.broken}"
            return untimed_rows(recorded, why), self._with(Stage.CHECK, Cause.DOUBT, why)
        if second.undone:
            second = replace(second, undone="", vacuous=second.undone)
        rows = twice_checked(recorded, second)
        try:
            rows = judged_rows(rows, self.notes, wall_s=self.wall_s)
        except TimingError as error:
            return untimed_rows(rows, str(error)), self._with(Stage.TIME, Cause.DOUBT, str(error))
        if second.wrong:
            return rows, self._with(
                Stage.CHECK,
                Cause.WRONG,
                f"right in its own process, and wrong where it was checked outside: {second.wrong}",
            )
        if not rows[0].check.comparable:
            return rows, self._with(Stage.CHECK, Cause.DOUBT, note_text(rows[0].note))
        return rows, self

    def _with(self, stage: Stage, cause: Cause, message: str) -> Verdict:
        return replace(self, fate=Fate(stage, cause), message=message)

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
        ended = {"stage": self.fate.stage.value, "cause": self.fate.cause.value} if self.fate.cause else {}
        return Row(
            case=job.case_id,
            implementation=name,
            role=role,
            check=check,
            note=Note.free(note),
            params={"candidate": job.name, "problem": job.problem, "inputs": job.inputs, **ended},
            seed=job.settings.seed,
        )


def fate_of(error: BaseException, failed: frozenset[str] | set[str] = frozenset()) -> Fate:
    """Say what an error of a worker means for its candidate.

    Args:
        error: As it arrives from the worker.
        failed: The rows that were recorded as wrong; a baseline's failure is not the candidate's.
    """
    match error:
        case ModelFileError():
            return _of_loading(error)
        case ImplementationError() if _is_of_a_compiler(error):
            return Fate(Stage.COMPILE, Cause.REFUSED)
        case VerificationError() if failed and CANDIDATE not in failed:
            return Fate(Stage.CHECK, Cause.DOUBT)
        case KernelmarkError() | MemoryError():
            return Fate.of(error)
    return Fate(Stage.RUN, Cause.DIED)


def _of_loading(error: ModelFileError) -> Fate:
    said = str(error.__cause__ or error)
    lacking = any(word in said for word in _LACKING)  # house: torch has no class for it
    if lacking or isinstance(error.__cause__, ModuleNotFoundError):
        return Fate(Stage.IMPORT, Cause.UNAVAILABLE)
    if _is_of_a_compiler(error):
        return Fate(Stage.COMPILE, Cause.REFUSED)
    return Fate(Stage.IMPORT, Cause.RAISED)


def _is_of_a_compiler(error: BaseException) -> bool:
    """Whether Triton's compiler refused a kernel, or torch could not build an extension, which has no class."""
    cause = error.__cause__
    if isinstance(cause, ForeignError) and cause.is_a("CompilationError"):
        return True
    return "Error building extension" in str(cause or error)  # house: torch has no class for it


def _stage(ended: Ended[Notes]) -> Stage:
    """Give the last stage of those that a candidate goes through."""
    return next((Stage(each) for each in reversed(ended.stages) if each in list(Stage)), Stage.ASKED)


def _cause(death: Death) -> Cause:
    if death.timed_out:
        return Cause.LIMIT
    return Cause.MEMORY if death.killed else Cause.DIED  # the system kills where memory runs out
