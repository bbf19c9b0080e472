"""Judges one candidate from outside: has it run, draws the seeds of the second check, and makes the rows that count.

Nothing of the user's is run here. Statistics and ratios are computed again from the raw samples.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import signal
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelmark.errors import RecordError
from kernelmark.kernelbench.candidates.finding import Candidate
from kernelmark.kernelbench.candidates.job import SEEDS, Job, Settings
from kernelmark.kernelbench.candidates.judged import Judged, Speedup
from kernelmark.kernelbench.candidates.process import JUDGE, WORKER
from kernelmark.kernelbench.candidates.starting import Starter
from kernelmark.kernelbench.candidates.verdict import Verdict
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelbench.suite import Sizes
from kernelmark.kernelfile.handover import OUTCOME, TIMED, Outcome, SecondCheck, write_json
from kernelmark.prefork import Finished, Limits, errors_beside
from kernelmark.process import death_in_words
from kernelmark.records import Ratio, Row, RunEnd, RunWriter, StoredRun, read_run

__all__ = ["CANDIDATES", "Judging", "fingerprint_of", "job_of", "judge"]

CANDIDATES = "candidates"
"""The folder of the runs, below the output folder."""
_POLL_S = 0.02
_SEED_BITS = 31
_MESSAGE = 300
_OF_A_STACK = ("Extension modules:", "  File ", "Current thread ", "Thread ", "  <", "  ...")
"""How lines of a stack begin that Python's fault handler writes last; the line before says more."""


@dataclass(frozen=True, slots=True)
class Judging:
    """How the candidates of a run are judged."""

    root: Path
    """The tree that holds the problems' files."""
    out: Path
    settings: Settings
    sizes: Sizes = Sizes.SUITE
    limits: Limits = field(default_factory=lambda: Limits(time_s=300.0))


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
        init_args=run.init_args,
        settings=settings.for_problem(own.atol, own.rtol) if own else settings,
        extensions=(judging.out / "extensions" / _folder_name(candidate)).resolve(),
    )


def fingerprint_of(candidate: Candidate, judging: Judging) -> str:
    """Give a short text that changes where the candidate, its problem or the settings do."""
    job = job_of(candidate, judging, judging.out)
    told = [job.inputs, repr(job.init_args), repr(job.settings)]
    parts = [
        candidate.path.read_bytes(),
        job.model.read_bytes() if job.model.is_file() else b"",
        *map(str.encode, told),
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]


def judge(candidate: Candidate, judging: Judging, starter: Starter) -> Judged:
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
        job.write()
        with _seeds_after_timing(job) as drawn:
            finished = starter.run([WORKER, scratch], log=log, limits=judging.limits)
        status, message, outcome = _ended(job, finished, judging.limits.time_s)
        stored = _records(job.folder)
        second = None
        if status is Status.VERIFIED:
            second = _checked_outside(replace(job, drawn=tuple(drawn)), judging, starter, log)
        verdict = Verdict(job, status, message, outcome, finished.wall_s)
        rows, verdict = verdict.rows(stored.rows if stored else (), second)
    if stored is not None:
        _keep(
            judging.out / CANDIDATES / _folder_name(candidate),
            stored,
            rows,
            failed=verdict.status is not Status.VERIFIED,
        )
    return _judged(candidate, judging, rows, verdict)


# --- the two processes -----------------------------------------------------------------------------------


@contextmanager
def _seeds_after_timing(job: Job) -> Iterator[list[int]]:
    """Wait beside the worker until it has timed, and give it then what nobody could know before."""
    drawn: list[int] = []
    over = threading.Event()

    def wait() -> None:
        while not over.wait(_POLL_S):
            if (job.folder / TIMED).exists():
                drawn.extend(secrets.randbits(_SEED_BITS) for _ in range(job.settings.seeds))
                write_json(job.folder / SEEDS, drawn)
                return

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield drawn
    finally:
        over.set()
        thread.join()


def _ended(job: Job, finished: Finished, limit_s: float) -> tuple[Status, str, Outcome | None]:
    """Say what a worker's end means, as far as it goes without looking at its answers."""
    said = [
        line
        for line in (finished.errors or finished.output).strip().splitlines()
        if not line.startswith(_OF_A_STACK)
    ]
    last = f": {said[-1]}" if said else ""
    if finished.timed_out:
        return Status.TIMEOUT, f"it did not end within {limit_s:g} s", None
    outcome = _read_outcome(job.folder / OUTCOME)
    if outcome is None:
        killed = finished.code == -signal.SIGKILL
        return (Status.OUT_OF_MEMORY if killed else Status.CRASH), death_in_words(finished.code) + last, None
    if not outcome.error:
        return Status.VERIFIED, "", outcome
    known = outcome.error if outcome.error in list(Status) else Status.CRASH
    return Status(known), outcome.message, outcome


def _checked_outside(job: Job, judging: Judging, starter: Starter, log: Path) -> SecondCheck:
    if not job.drawn:
        return SecondCheck(wrong="its process never came to its answers for a second check")
    with tempfile.TemporaryDirectory(prefix="kernelmark-") as folder:
        other = replace(job, folder=Path(folder), answers=job.folder)
        other.write()
        finished = starter.run([JUDGE, folder], log=log.with_suffix(".judge.txt"), limits=judging.limits)
        outcome = _read_outcome(other.folder / OUTCOME)
        errors_beside(log.with_suffix(".judge.txt")).touch()
        if outcome is None:
            limit = f"it did not end within {judging.limits.time_s:g} s"
            return SecondCheck(broken=limit if finished.timed_out else death_in_words(finished.code))
        return SecondCheck(broken=outcome.message) if outcome.error else SecondCheck.read(other.folder)


def _read_outcome(path: Path) -> Outcome | None:
    try:
        return Outcome(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


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
        notes=tuple(rows[0].notes) if rows else (),
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
    writer.end(RunEnd(ended=now(), rows=writer.rows, outcome="failed" if failed else "completed"))
    write_reports(run)


def _folder_name(candidate: Candidate) -> str:
    return candidate.name.removesuffix(".py").replace("/", "-")
