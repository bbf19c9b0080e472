"""Judges one candidate from outside: has it run, draws the seeds of the second check, and makes the rows that count.

Nothing of the user's is run here. Statistics and ratios are computed again from the raw samples, and what became of
a candidate is said by its worker's end, its rows and what the judge found.
"""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelmark.errors import (
    ImplementationError,
    KernelmarkError,
    ModelFileError,
    RecordError,
    TimingError,
    VerificationError,
)
from kernelmark.isolation import TIMED, Ended, ForeignError, ForkServer, Judge, Limits, Start, Worker
from kernelmark.kernelbench.candidates.finding import Candidate
from kernelmark.kernelbench.candidates.job import CANDIDATE, Job, Judging
from kernelmark.kernelbench.candidates.page import Judged, Speedup
from kernelmark.kernelbench.kernel import fate_of_death, stage_of
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelfile.judging import judged_rows, twice_checked, untimed_rows
from kernelmark.kernelfile.request import SecondCheck
from kernelmark.records import (
    Cause,
    Check,
    Fate,
    Note,
    NoteKind,
    Role,
    Row,
    RunEnd,
    RunOutcome,
    RunWriter,
    Stage,
    StoredRun,
    read_run,
)
from kernelmark.report.notes import note_text

__all__ = ["CANDIDATES", "Verdict", "Workers", "fate_of", "fingerprint_of", "job_of", "judge", "workers_for"]

Notes = dict[str, list[str]]

CANDIDATES = "candidates"
"""The folder of the runs, below the output folder."""
_SEED_BITS = 31
_MESSAGE = 300
_WORKER = "kernelmark.kernelbench.candidates.worker:work"
_JUDGE = "kernelmark.kernelbench.candidates.answers:judge_answers"
_PRELOAD = (
    "torch",
    "torch._dynamo",
    "kernelmark.harness.runner",
    "kernelmark.kernelbench.candidates.answers",
    "kernelmark.verify.verdict",
)
"""Imported before the fork; inductor is not, since it starts threads."""


@dataclass(frozen=True, slots=True)
class Workers:
    """A candidate's two processes: the worker, which loads it, and the judge, which never does."""

    worker: Worker[Notes]
    judge: Worker[SecondCheck]


@contextmanager
def workers_for(device: str) -> Iterator[Workers]:
    """Give what calls a candidate's processes: forked from a server that has torch already, or each from nothing.

    Where a GPU's driver may have been opened in the server, nothing that was forked from it could use the device.
    """
    with ExitStack() as stack:
        start = stack.enter_context(ForkServer(_PRELOAD)) if device == "cpu" else Start.SPAWN
        worker = Worker(_WORKER, Limits(None), start=start, answer=Notes)
        judge = Judge(_JUDGE, Limits(None), start=start, answer=SecondCheck)
        yield Workers(stack.enter_context(worker), stack.enter_context(judge))


def job_of(candidate: Candidate, judging: Judging, folder: Path) -> Job:
    """Make the job of a candidate's worker.

    Raises:
        SuiteError: its problem has no sizes of the kind that is asked for.
    """
    entry, settings = candidate.entry, judging.settings
    run = entry.at(judging.sizes)
    own = entry.tolerances
    return Job(
        folder=folder,
        name=candidate.name,
        candidate=candidate.path.resolve(),
        problem=entry.kernel,
        model=(judging.root / entry.kernel).resolve(),
        inputs=run.inputs(settings.dtype),
        init_args=repr(list(run.init_args or ())),
        settings=settings.for_problem(own.atol, own.rtol) if own else settings,
        extensions=(judging.out / "extensions" / _folder_name(candidate)).resolve(),
    )


def fingerprint_of(candidate: Candidate, judging: Judging) -> str:
    """Give a short text that changes where the candidate, its problem or the settings do."""
    job = job_of(candidate, judging, judging.out)
    told = [job.inputs, job.init_args, repr(job.settings)]
    parts = [
        candidate.path.read_bytes(),
        job.model.read_bytes() if job.model.is_file() else b"",
        *map(str.encode, told),
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]


def judge(candidate: Candidate, judging: Judging, workers: Workers) -> Judged:
    """Have a candidate run and its answers checked outside; keep its run, and give what became of it.

    Raises:
        UnavailableError: no process can be started any more.
        RecordError: the run cannot be written.
    """
    entry, dtype = candidate.entry, judging.settings.dtype
    if entry.dtypes and dtype not in entry.dtypes:
        why = f"the suite has the problem in {', '.join(entry.dtypes)} only"
        return Judged(candidate.name, entry.kernel, Status.UNAVAILABLE, why)
    if not (judging.root / entry.kernel).is_file():
        why = f"{judging.root / entry.kernel} is not there"
        return Judged(candidate.name, entry.kernel, Status.UNAVAILABLE, why)
    logs = judging.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{_folder_name(candidate)}.txt"
    with tempfile.TemporaryDirectory(prefix="kernelmark-") as scratch:
        job = job_of(candidate, judging, Path(scratch))
        drawn: list[int] = []

        def draw() -> list[int]:
            """Draw, after timing, what nobody could know before."""
            drawn[:] = [secrets.randbits(_SEED_BITS) for _ in range(job.settings.seeds)]
            return drawn

        ended = workers.worker.call(job, log=log, limits=judging.limits, replies={TIMED: draw})
        stored = None
        with suppress(RecordError):
            stored = read_run(job.folder)
        recorded = stored.rows if stored else ()
        verdict, second = Verdict.of(job, ended, recorded), None
        if verdict.status is Status.VERIFIED:
            second = _checked_outside(replace(job, drawn=tuple(drawn)), judging, workers, log)
        rows, verdict = verdict.rows(recorded, second)
    good = verdict.status is Status.VERIFIED
    if stored is not None:
        _keep(judging.out / CANDIDATES / _folder_name(candidate), stored, rows, failed=not good)
    timing = rows[0].timing if rows and good else None
    ratios = {row.implementation: row.ratio for row in rows[1:] if good and row.ratio}
    return Judged(
        name=candidate.name,
        problem=entry.kernel,
        status=verdict.status,
        message=_short(verdict.message),
        time_ns=timing.device_busy.median_ns if timing else None,
        speedups={name: Speedup(each.value, each.low, each.high) for name, each in ratios.items()},
        notes=tuple(map(note_text, rows[0].notes)) if rows else (),
        wall_s=round(verdict.wall_s, 2),
        fingerprint=fingerprint_of(candidate, judging),
    )


def _checked_outside(job: Job, judging: Judging, workers: Workers, log: Path) -> SecondCheck:
    if not job.drawn:
        return SecondCheck(wrong="its process never came to its answers for a second check")
    ended = workers.judge.call(job, log=log.with_suffix(".judge.txt"), limits=judging.limits)
    return ended.answer or SecondCheck(broken=ended.message)


# --- what is kept ----------------------------------------------------------------------------------------


def _short(message: str) -> str:
    """Give a message on one line, cut where it is long; the run has all of it."""
    line = " ".join(message.split())
    return line if len(line) <= _MESSAGE else f"{line[: _MESSAGE - 1]}…"


def _keep(folder: Path, stored: StoredRun, rows: Sequence[Row], *, failed: bool) -> None:
    """Write the run as every other way in does."""
    from kernelmark.harness.provenance import now
    from kernelmark.report import write_reports

    run = folder / stored.header.run
    writer = RunWriter.create(run, stored.header)
    for row in rows:
        writer.row(row)
    writer.end(
        RunEnd(ended=now(), rows=writer.rows, outcome=RunOutcome.FAILED if failed else RunOutcome.COMPLETED)
    )
    write_reports(run)


def _folder_name(candidate: Candidate) -> str:
    return candidate.name.removesuffix(".py").replace("/", "-")


# --- what became of it -----------------------------------------------------------------------------------

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
            fate = fate_of_death(ended, Stage.ASKED)
            last = f": {ended.last_words}" if ended.last_words and fate.cause is not Cause.LIMIT else ""
            return cls(job, fate, f"{ended.death} (at {fate.stage}){last}", ended.wall_s)
        if ended.failure is not None:
            failed = {row.implementation for row in recorded if row.check is Check.FAILED}
            fate = fate_of(ended.failure.error, failed)
            if fate.cause is Cause.MEMORY:  # which runs out anywhere
                fate = replace(fate, stage=stage_of(ended, Stage.ASKED))
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
            note = Note.of(NoteKind.FAILED, status=self.status.value, why=self.message)
            mine = self._row(CANDIDATE, Role.OURS, Check.FAILED, note, traceback=self.evidence or None)
        untimed = Note.of(NoteKind.NOT_TIMED, why="the candidate failed")
        rows = [mine]
        for baseline in self.job.settings.baselines:
            row = known.get(baseline.value)
            if row is None or row.timing is not None:
                row = self._row(baseline.value, Role.BASELINE, Check.UNVERIFIED, untimed)
            rows.append(row)
        return tuple(rows)

    def _row(self, name: str, role: Role, check: Check, note: Note, traceback: str | None = None) -> Row:
        job, cause = self.job, self.fate.cause
        ended = {"stage": self.fate.stage.value, "cause": cause.value} if cause else {}
        return Row(
            case=job.case_id,
            implementation=name,
            role=role,
            check=check,
            note=note,
            params={"candidate": job.name, "problem": job.problem, "inputs": job.inputs, **ended},
            seed=job.settings.seed,
            traceback=traceback,
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
