"""One kernel file from the command line's request to its report: build, run the worker, judge, write.

Statistics, ratios and the verdict are computed here from the raw samples, in a process that has run nothing
of the user's.
"""

from __future__ import annotations

import importlib.util
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelmark import errors
from kernelmark.isolation import READY, TIMED, Ended, Failure, Judge, Limits, Worker, decode, encode
from kernelmark.kernelfile.building import Library, find_library
from kernelmark.kernelfile.document import KernelRun, summary, write_documents
from kernelmark.kernelfile.judging import Ending, judged_rows, missing_rows, twice_checked, untimed_rows
from kernelmark.kernelfile.names import Accepted, names_in_python, require_known
from kernelmark.kernelfile.request import LANGUAGES, SOLUTION, Job, Request, SecondCheck
from kernelmark.kernelfile.signature import scalars_of, signature_of
from kernelmark.records import Check, Fate, Note, Row, RunEnd, RunOutcome, RunWriter, StoredRun, read_run

__all__ = ["Processes", "benchmark", "carry_out", "processes"]


Processes = tuple[Worker[None], Worker[SecondCheck]]
"""A worker, which loads the solution, and a judge, which never does."""


@contextmanager
def processes(request: Request, *, keep_worker: bool = False) -> Iterator[Processes]:
    """Have the child processes of one benchmark, or of several of the same files that follow each other.

    Args:
        request: Whose files they run.
        keep_worker: Whether one worker serves all of them, as long as they end well.
    """
    # importing torch and opening a CUDA device took 3 s to 20 s where it was measured; then comes the probe
    limits = Limits(time_s=request.timeout_s, start_s=180.0)
    environment = {"TRITON_INTERPRET": "1"} if request.interpreted else {}
    work, recheck = "kernelmark.kernelfile.worker:work", "kernelmark.kernelfile.second_check:recheck"
    with (
        Worker[None](work, limits, answer=None, environment=environment, keep=keep_worker) as worker,
        Judge[SecondCheck](recheck, limits, answer=SecondCheck, keep=True) as judge,
    ):
        yield worker, judge


def benchmark(request: Request, *, command: tuple[str, ...] = ()) -> KernelRun:
    """Compare a solution with its reference, and write ``benchmark.md``, ``benchmark.json`` and the run.

    Args:
        request: What to compare, and how.
        command: The command line, for the record.

    Raises:
        UsageError: the files or values do not fit each other; nothing was measured.
        UnavailableError: this machine lacks the library, the compiler, the device or a package.
        VerificationError: the solution, or a baseline, is wrong. The report is written.
        CrashedError: the solution gave no answer: it raised, exited, hung or died. The report is written.
        TimingError: the instrument cannot vouch for a reading. The report is written.
    """
    run = carry_out(request, command=command)
    if run.error is not None:
        run.error.comparison = run.comparison  # type: ignore[attr-defined]
        raise run.error
    return run


def carry_out(
    request: Request, *, command: tuple[str, ...] = (), running: Processes | None = None
) -> KernelRun:
    """Do what :func:`benchmark` does, and give the error of a run whose report is written with the run.

    Raises:
        UsageError: the files or values do not fit each other; nothing was measured.
        UnavailableError: this machine lacks something, and there is nothing to report.
    """
    library = _prepare(request)
    with ExitStack() as stack:
        worker, judge = running or stack.enter_context(processes(request))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelmark-")))
        job = Job(folder, request, library.path if library else None)
        seed, ended = _work(job, worker)
        try:
            stored = read_run(folder)  # up to the row that the worker died in
        except errors.RecordError:
            stored = None
        error = _error_of(ended, stored.rows if stored else ())
        if stored is None:
            raise error or errors.UnavailableError(f"the worker left no record\n{_output(ended)}")
        reported = errors.VerificationError | errors.TimingError
        if error is not None and not stored.rows and not isinstance(error, reported):
            raise error
        second = None
        if request.isolation and error is None and stored.rows and stored.rows[0].check.comparable:
            judged = judge.call(replace(job, seed=seed))
            broken = f"{judged.message}\n{_output(judged)}".strip()
            second = judged.answer or SecondCheck(broken=broken)
    return _written(_judged(request, library, stored, ended, error, second), command)


def _prepare(request: Request) -> Library | None:
    """Find every error of use that needs no process, and the library."""
    entry, solution = LANGUAGES[request.language], request.solution
    reference = names_in_python(request.ref, ("reference", "shapes", "reduction"), required=("reference",))
    sources = {f"reference() in {request.ref.name}": reference}
    if entry.interface == "library":
        signature = signature_of(request)
        scalars = Accepted(frozenset(each.name for each in signature.scalars))
        require_known(request.values, {f"solve() in {solution.name}": scalars, **sources})
        scalars_of(request, signature)
        return find_library(request)
    # what run_kernel takes comes from setup
    setup = names_in_python(solution, ("setup",), required=("setup", "run_kernel"))
    require_known(request.values, {f"setup() in {solution.name}": setup, **sources})
    if entry.package is not None and importlib.util.find_spec(entry.package) is None:
        raise errors.UnavailableError(
            f"--implementation={request.language.value} needs the package {entry.package!r}, which is not"
            f" installed; install {entry.distribution}"
        )
    return None


def _work(job: Job, worker: Worker[None]) -> tuple[int, Ended[None]]:
    """Have the solution checked and timed; give the seed of the second check, too, which a worker hears last."""
    seed = secrets.randbits(31)
    if job.request.isolation:
        return seed, worker.call(job, replies={TIMED: lambda: seed})
    if job.request.interpreted:
        raise errors.UsageError(
            "--no-isolation: Triton's interpreter is chosen when a process starts; run it in a worker, or set"
            " TRITON_INTERPRET=1 and name --implementation=torch"
        )
    from kernelmark.kernelfile.worker import compare

    told: list[dict[str, Any]] = []
    failure: Failure | None = None
    try:
        compare(job, told.append)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a solution raises becomes its row
        failure = decode(encode(error))
    return seed, Ended(failure=failure, stages=(READY,), told=tuple(told), wall_s=float("inf"))


def _error_of(ended: Ended[None], rows: tuple[Row, ...]) -> errors.KernelmarkError | None:
    """Turn how the worker ended into the error that it means; ``None`` for one that ended well."""
    if ended.death is None and ended.failure is None:
        return None
    error = ended.failure.error if ended.failure else None
    if isinstance(error, errors.ImplementationError | errors.DeviceMemoryError):
        ours = not rows or rows[0].check is Check.FAILED
        return (errors.CrashedError if ours else errors.VerificationError)(str(error))
    if isinstance(error, errors.KernelmarkError):
        return error
    output = _output(ended) if ended.death else ""
    evidence = f"{ended.message}\nthe last lines of its output:\n{output}" if output else ended.message
    if READY not in ended.stages:
        return errors.UnavailableError(f"the worker did not get to the solution: {evidence}")
    late = ended.death is not None and ended.death.timed_out
    return (errors.TimeLimitError if late else errors.CrashedError)(f"the solution crashed: {evidence}")


def _output(ended: Ended[Any]) -> str:
    return "\n".join(filter(None, (ended.output, ended.errors)))


def _judged(
    request: Request,
    library: Library | None,
    stored: StoredRun,
    ended: Ended[None],
    error: errors.KernelmarkError | None,
    second: SecondCheck | None,
) -> KernelRun:
    facts: dict[str, Any] = {"built with": library.built_with} if library else {}
    notes = {SOLUTION: list(library.notes) if library else []}
    for told in ended.told:
        facts |= told.get("facts", {})
        for name, found in told.get("notes", {}).items():
            notes.setdefault(name, []).extend(map(Note.model_validate, found))
    rows = stored.rows
    if second is not None:
        rows = twice_checked(rows, second)
        error, facts["answers checked again"] = _of_second(second)
    try:
        rows = judged_rows(rows, notes, wall_s=ended.wall_s)
    except errors.TimingError as found:
        rows, error = untimed_rows(rows, str(found)), error or found
    # with an error, a row with a time is one that was recorded before things went wrong
    late = any(row.timing for row in rows)
    crashed = isinstance(error, errors.CrashedError)
    if error is not None and (not rows or late or (crashed and rows[0].check is not Check.FAILED)):
        evidence = ended.failure.traceback if ended.failure else _output(ended)
        rows = missing_rows(request, rows, error, evidence)
    if crashed and ended.failure:
        facts["output"] = _output(ended)
    outcome = Ending.of(Fate.of(error) if error is not None else rows[0].fate)
    folder = request.output_dir / "runs" / stored.header.run
    return KernelRun(request, stored.header, rows, outcome, error, facts, folder)


def _of_second(second: SecondCheck) -> tuple[errors.KernelmarkError | None, str]:
    """Give the error that a second check means, and what the report says of it."""
    told = "yes, in a process that never loaded the solution"
    if second.broken:
        return errors.UnavailableError(
            f"the solution's answers could not be checked a second time, outside its process: {second.broken}"
        ), told
    if second.wrong:
        return errors.VerificationError(
            "the solution passed in its own process, and its answers to values drawn after timing, checked"
            f" outside it, are wrong: {second.wrong}"
        ), f"{told}, and wrong"
    return None, f"no: {second.undone}" if second.undone else told


def _written(run: KernelRun, command: tuple[str, ...]) -> KernelRun:
    """Write the run as every other way in does, in a folder of its own below the output folder, and the documents."""
    from kernelmark.harness.provenance import now
    from kernelmark.report import write_reports

    run = replace(run, header=run.header.model_copy(update={"command": command}))
    writer = RunWriter.create(run.folder, run.header)
    for row in run.rows:
        writer.row(row)
    ended = RunOutcome.COMPLETED if run.outcome.passed else RunOutcome.FAILED
    writer.end(RunEnd(ended=now(), rows=writer.rows, outcome=ended))
    write_reports(run.folder)
    run = replace(run, told=summary(run, read_run(run.folder)))
    write_documents(run.request.output_dir, run.told)
    return run
