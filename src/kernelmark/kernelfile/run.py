"""One kernel file from the command line's request to its report: build, run the worker, judge, write.

Statistics, ratios and the verdict are computed here from the raw samples, in a process that has run nothing
of the user's.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kernelmark.errors as errors
from kernelmark.errors import (
    CrashedError,
    KernelmarkError,
    TimingError,
    UnavailableError,
    UsageError,
    VerificationError,
)
from kernelmark.kernelfile.arguments import scalars_of, signature_of
from kernelmark.kernelfile.building import find_library
from kernelmark.kernelfile.handover import FACTS, Job, SecondCheck
from kernelmark.kernelfile.isolation import Processes, WorkerEnd
from kernelmark.kernelfile.judging import judged_rows, missing_rows, twice_checked, untimed_rows
from kernelmark.kernelfile.languages import LANGUAGES
from kernelmark.kernelfile.names import Accepted, names_in_python, require_known
from kernelmark.kernelfile.request import Request
from kernelmark.records import Check, Row, RunEnd, RunHeader, RunOutcome, RunWriter, StoredRun, read_run

if TYPE_CHECKING:
    from kernelmark.harness.runner import Comparison

__all__ = ["KernelRun", "benchmark"]


@dataclass(frozen=True, slots=True)
class KernelRun:
    """What one benchmark found, and where it is written."""

    request: Request
    header: RunHeader
    rows: tuple[Row, ...]
    outcome: str
    """``verified``, ``measured``, ``wrong``, ``crashed`` or ``untimed``."""
    message: str
    folder: Path
    """The folder of the run: records, and the reports of every other way in."""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def comparison(self) -> Comparison:
        """The rows as a table that prints."""
        from kernelmark.harness.runner import Comparison

        return Comparison(self.request.case_id, self.rows)


def benchmark(
    request: Request, *, command: tuple[str, ...] = (), processes: Processes | None = None
) -> KernelRun:
    """Compare a solution with its reference, and write ``benchmark.md``, ``benchmark.json`` and the run.

    Args:
        request: What to compare, and how.
        command: The command line, for the record.
        processes: The child processes to use, for several benchmarks that follow each other.

    Raises:
        UsageError: the files or values do not fit each other; nothing was measured.
        UnavailableError: this machine lacks the library, the compiler, the device or a package.
        VerificationError: the solution, or a baseline, is wrong. The report is written.
        CrashedError: the solution gave no answer: it raised, exited, hung or died. The report is written.
        TimingError: the instrument cannot vouch for a reading. The report is written.
    """
    from kernelmark.kernelfile.document import write_documents

    library = _prepare(request)
    with ExitStack() as stack:
        running = processes or stack.enter_context(Processes())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelmark-")))
        job = Job(scratch, request, library)
        end = _run(job, running)
        stored = _records(scratch)
        error = _error_of(end, request, stored.rows if stored else ())
        if stored is None:
            raise error or UnavailableError(f"the worker left no record\n{end.output}")
        if error is not None and not stored.rows and not isinstance(error, VerificationError | TimingError):
            raise error
        second = _second_check(job, end, stored.rows, error, running)
        run, error = _judge(job, stored, end, error, second)
    run = _stored(run, command)
    write_documents(run)
    if error is not None:
        error.comparison = run.comparison  # type: ignore[attr-defined]
        raise error
    return run


def _prepare(request: Request) -> Path | None:
    """Find every error of use that needs no process, and the library."""
    entry = LANGUAGES[request.language]
    takes_reference = names_in_python(request.ref, ("reference", "shapes"), required=("reference",))
    sources: dict[str, Accepted | frozenset[str]] = {}
    library = None
    if entry.interface == "library":
        signature = signature_of(request)
        sources[f"solve() in {request.solution.name}"] = frozenset(e.name for e in signature.scalars)
        sources[f"reference() in {request.ref.name}"] = takes_reference
        require_known(request.values, sources)
        scalars_of(request, signature)
        library = find_library(request)
    else:
        # what run_kernel takes comes from setup
        required = ("setup", "run_kernel")
        sources[f"setup() in {request.solution.name}"] = names_in_python(
            request.solution, ("setup",), required=required
        )
        sources[f"reference() in {request.ref.name}"] = takes_reference
        require_known(request.values, sources)
        if entry.package is not None and importlib.util.find_spec(entry.package) is None:
            raise UnavailableError(
                f"--implementation={request.language.value} needs the package {entry.package!r}, which is not"
                f" installed; install {entry.distribution}"
            )
    return library


def _run(job: Job, processes: Processes) -> WorkerEnd:
    if job.request.isolation:
        return processes.work(job)
    if job.request.interpreted:
        raise UsageError(
            "--no-isolation: Triton's interpreter is chosen when a process starts; run it in a worker, or set"
            " TRITON_INTERPRET=1 and name --implementation=torch"
        )
    from kernelmark.kernelfile.worker import work

    return WorkerEnd(work(job), started=True, death="", output="", wall_s=float("inf"))


def _second_check(
    job: Job, end: WorkerEnd, rows: tuple[Row, ...], error: KernelmarkError | None, processes: Processes
) -> SecondCheck | None:
    """Have the answers of a solution that passed in its own process checked outside it."""
    if not job.request.isolation or error is not None or not rows or not rows[0].check.comparable:
        return None
    if end.seed is None:
        return SecondCheck(wrong="the worker never came to its answers for a second check")
    return processes.recheck(replace(job, seed=end.seed))


def _error_of(end: WorkerEnd, request: Request, rows: tuple[Row, ...]) -> KernelmarkError | None:
    """Turn how the worker ended into the error that it means; ``None`` for one that ended well."""
    outcome = end.outcome
    if outcome is None:
        evidence = f"\nthe last lines of its output:\n{end.output}" if end.output else ""
        if not end.started:
            return UnavailableError(f"the worker did not get to the solution: {end.death}{evidence}")
        return CrashedError(f"the solution crashed: {end.death}{evidence}")
    if not outcome.error:
        return None
    known = getattr(errors, outcome.error, None)
    if known in (errors.ImplementationError, errors.DeviceMemoryError):
        ours = not rows or rows[0].check is Check.FAILED
        return (CrashedError if ours else VerificationError)(outcome.message)
    if isinstance(known, type) and issubclass(known, KernelmarkError):
        return known(outcome.message)
    if not end.started:
        return UnavailableError(f"the worker did not get to the solution: {outcome.message}")
    if request.ref.name in outcome.traceback and request.solution.name not in outcome.traceback:
        return VerificationError(f"a baseline crashed while it was timed: {outcome.message}")
    return CrashedError(f"the solution crashed: {outcome.message}")


def _records(scratch: Path) -> StoredRun | None:
    """Read what the worker recorded, up to the row that it died in; ``None`` if it recorded nothing."""
    try:
        return read_run(scratch)
    except errors.RecordError:
        return None


def _judge(
    job: Job,
    stored: StoredRun,
    end: WorkerEnd,
    error: KernelmarkError | None,
    second: SecondCheck | None,
) -> tuple[KernelRun, KernelmarkError | None]:
    request, facts = job.request, _facts(job.folder)
    notes = end.outcome.notes if end.outcome else {}
    evidence = end.output if end.outcome is None else end.outcome.traceback
    rows = stored.rows
    if second is not None:
        rows, error = twice_checked(rows, second), error or _error_of_second(second)
        facts["second_check"] = _told(second)
    try:
        rows = judged_rows(rows, notes, wall_s=end.wall_s)
    except TimingError as found:
        rows, error = untimed_rows(rows, str(found)), error or found
    crashed = isinstance(error, CrashedError)
    # with an error, a row with a time is one that was recorded before things went wrong
    late = any(row.timing for row in rows)
    if error is not None and (not rows or late or (crashed and rows[0].check is not Check.FAILED)):
        rows = missing_rows(request, rows, str(error), evidence, crashed=crashed)
    outcome = _outcome(rows, error)
    if isinstance(error, CrashedError) and end.output and end.outcome is not None:
        facts["output"] = end.output
    return KernelRun(request, stored.header, rows, outcome, str(error or ""), job.folder, facts), error


def _error_of_second(second: SecondCheck) -> KernelmarkError | None:
    if second.broken:
        return UnavailableError(
            f"the solution's answers could not be checked a second time, outside its process: {second.broken}"
        )
    if second.wrong:
        return VerificationError(
            "the solution passed in its own process, and its answers to values drawn after timing, checked"
            f" outside it, are wrong: {second.wrong}"
        )
    return None


def _told(second: SecondCheck) -> str:
    if second.undone:
        return f"no: {second.undone}"
    return "yes, in a process that never loaded the solution" + (", and wrong" if second.wrong else "")


def _outcome(rows: tuple[Row, ...], error: KernelmarkError | None) -> str:
    if isinstance(error, CrashedError):
        return "crashed"
    if isinstance(error, TimingError | UnavailableError):
        return "untimed"
    if error is not None:
        return "wrong"
    return "measured" if rows[0].timing else "verified"


def _facts(scratch: Path) -> dict[str, Any]:
    try:
        return json.loads((scratch / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _stored(run: KernelRun, command: tuple[str, ...]) -> KernelRun:
    """Write the run as every other way in does, in a folder of its own below the output folder."""
    from kernelmark.harness.provenance import now
    from kernelmark.report import write_reports

    folder = run.request.output_dir / "runs" / run.header.run
    header = run.header.model_copy(update={"command": command})
    writer = RunWriter.create(folder, header)
    for row in run.rows:
        writer.row(row)
    failed = run.outcome in ("crashed", "wrong", "untimed")
    writer.end(
        RunEnd(ended=now(), rows=writer.rows, outcome=RunOutcome.FAILED if failed else RunOutcome.COMPLETED)
    )
    write_reports(folder)
    return replace(run, header=header, folder=folder)
