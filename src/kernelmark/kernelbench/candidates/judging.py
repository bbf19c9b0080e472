"""Judges one candidate from outside: has it run, draws the seeds of the second check, and makes the rows that count.

Nothing of the user's is run here. Statistics and ratios are computed again from the raw samples.
"""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from kernelmark.errors import RecordError
from kernelmark.isolation import TIMED, ForkServer, Judge, Limits, Start, Worker
from kernelmark.kernelbench.candidates.finding import Candidate
from kernelmark.kernelbench.candidates.job import Job, Settings
from kernelmark.kernelbench.candidates.judged import Judged, Speedup
from kernelmark.kernelbench.candidates.verdict import Notes, Verdict
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelbench.suite import Sizes
from kernelmark.kernelfile.handover import SecondCheck
from kernelmark.records import Ratio, Row, RunEnd, RunOutcome, RunWriter, StoredRun, read_run
from kernelmark.report.notes import note_text

__all__ = ["CANDIDATES", "Judging", "Workers", "fingerprint_of", "job_of", "judge", "workers_for"]

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


@dataclass(frozen=True, slots=True)
class Judging:
    """How the candidates of a run are judged."""

    root: Path
    """The tree that holds the problems' files."""
    out: Path
    settings: Settings
    sizes: Sizes = Sizes.SUITE
    limits: Limits = field(default_factory=lambda: Limits(time_s=300.0))

    @property
    def asked(self) -> dict[str, object]:
        """What was asked for, by the options' names."""
        baselines = ",".join(self.settings.baselines) or "none"
        return {"sizes": self.sizes, **asdict(self.settings), "baselines": baselines}


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
        return _unavailable(candidate, f"the suite has the problem in {', '.join(entry.dtypes)} only")
    if not (judging.root / entry.kernel).is_file():
        return _unavailable(candidate, f"{judging.root / entry.kernel} is not there")
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
        stored = _records(job.folder)
        recorded = stored.rows if stored else ()
        verdict, second = Verdict.of(job, ended, recorded), None
        if verdict.status is Status.VERIFIED:
            second = _checked_outside(replace(job, drawn=tuple(drawn)), judging, workers, log)
        rows, verdict = verdict.rows(recorded, second)
    if stored is not None:
        _keep(
            judging.out / CANDIDATES / _folder_name(candidate),
            stored,
            rows,
            failed=verdict.status is not Status.VERIFIED,
        )
    return _judged(candidate, judging, rows, verdict)


def _checked_outside(job: Job, judging: Judging, workers: Workers, log: Path) -> SecondCheck:
    if not job.drawn:
        return SecondCheck(wrong="its process never came to its answers for a second check")
    ended = workers.judge.call(job, log=log.with_suffix(".judge.txt"), limits=judging.limits)
    return ended.answer or SecondCheck(broken=ended.message)


def _records(folder: Path) -> StoredRun | None:
    try:
        return read_run(folder)
    except RecordError:
        return None


# --- what is kept ----------------------------------------------------------------------------------------


def _judged(candidate: Candidate, judging: Judging, rows: Sequence[Row], verdict: Verdict) -> Judged:
    good = verdict.status is Status.VERIFIED
    timing = rows[0].timing if rows else None
    return Judged(
        name=candidate.name,
        problem=candidate.entry.kernel,
        status=verdict.status,
        message=_short(verdict.message),
        time_ns=timing.device_busy.median_ns if good and timing else None,
        speedups={row.implementation: _speedup(row.ratio) for row in rows[1:] if good and row.ratio},
        notes=tuple(map(note_text, rows[0].notes)) if rows else (),
        wall_s=round(verdict.wall_s, 2),
        fingerprint=fingerprint_of(candidate, judging),
    )


def _speedup(ratio: Ratio) -> Speedup:
    return Speedup(ratio.value, ratio.low, ratio.high)


def _unavailable(candidate: Candidate, why: str) -> Judged:
    return Judged(candidate.name, candidate.entry.kernel, Status.UNAVAILABLE, why)


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
