"""One kernel file from the command line's request to its report: build, run the worker, judge, write.

Statistics, ratios and the verdict are computed here from the raw samples, in a process that has run nothing
of the user's.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelmark.errors import (
    CrashedError,
    DeviceMemoryError,
    ImplementationError,
    KernelmarkError,
    RecordError,
    TimeLimitError,
    TimingError,
    UnavailableError,
    UsageError,
    VerificationError,
)
from kernelmark.isolation import READY, TIMED, Ended, Failure, Judge, Limits, Worker, decode, encode
from kernelmark.kernelfile.building import Library, find_library
from kernelmark.kernelfile.document import VERDICTS, write_documents
from kernelmark.kernelfile.handover import Job, SecondCheck
from kernelmark.kernelfile.judging import (
    Ending,
    judged_rows,
    missing_rows,
    speedups,
    twice_checked,
    untimed_rows,
    variants,
)
from kernelmark.kernelfile.languages import LANGUAGES
from kernelmark.kernelfile.names import Accepted, names_in_python, require_known
from kernelmark.kernelfile.request import SOLUTION, Request
from kernelmark.kernelfile.signature import scalars_of, signature_of
from kernelmark.records import (
    FORMAT_VERSION,
    Check,
    Fate,
    Row,
    RunEnd,
    RunHeader,
    RunOutcome,
    RunWriter,
    StoredRun,
    read_run,
)
from kernelmark.report.facts import probe_text
from kernelmark.report.notes import error_text, row_notes
from kernelmark.report.remarks import remarks

if TYPE_CHECKING:
    from kernelmark.harness.runner import Comparison

__all__ = ["KernelRun", "Processes", "benchmark", "carry_out", "processes"]

_START_UP_S = 180.0
"""Importing torch and opening a CUDA device took 3 s to 20 s where it was measured; then comes the probe."""
_SEED_BITS = 31


@dataclass(frozen=True, slots=True)
class KernelRun:
    """What one benchmark found, and where it is written."""

    request: Request
    header: RunHeader
    rows: tuple[Row, ...]
    outcome: Ending
    error: KernelmarkError | None
    """What ended it; ``None`` where it passed."""
    facts: dict[str, Any] = field(default_factory=dict)
    folder: Path = Path()
    """The folder of the run: records, and the reports of every other way in."""
    told: dict[str, Any] = field(default_factory=dict)
    """What ``benchmark.json`` holds."""

    @property
    def comparison(self) -> Comparison:
        """The rows as a table that prints."""
        from kernelmark.harness.runner import Comparison

        return Comparison(self.request.case_id, self.rows)


@dataclass(frozen=True, slots=True)
class Processes:
    """A worker, which loads the solution, and a judge, which never does."""

    worker: Worker[None]
    judge: Worker[SecondCheck]


@contextmanager
def processes(request: Request, *, keep_worker: bool = False) -> Iterator[Processes]:
    """Have the child processes of one benchmark, or of several of the same files that follow each other.

    Args:
        request: Whose files they run.
        keep_worker: Whether one worker serves all of them, as long as they end well.
    """
    limits = Limits(time_s=request.timeout_s, start_s=_START_UP_S)
    environment = {"TRITON_INTERPRET": "1"} if request.interpreted else {}
    here = "kernelmark.kernelfile"
    with (
        Worker[None](
            f"{here}.worker:work", limits, answer=None, environment=environment, keep=keep_worker
        ) as worker,
        Judge[SecondCheck](f"{here}.second_check:recheck", limits, answer=SecondCheck, keep=True) as judge,
    ):
        yield Processes(worker, judge)


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
        running = running or stack.enter_context(processes(request))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelmark-")))
        job = Job(folder, request, library.path if library else None)
        seed, ended = _work(job, running.worker)
        stored = _records(folder)
        error = _error_of(ended, stored.rows if stored else ())
        if stored is None:
            raise error or UnavailableError(f"the worker left no record\n{_output(ended)}")
        if error is not None and not stored.rows and not isinstance(error, VerificationError | TimingError):
            raise error
        second = None
        if request.isolation and error is None and stored.rows and stored.rows[0].check.comparable:
            second = _second_check(replace(job, seed=seed), running.judge)
    return _written(_judged(request, library, stored, ended, error, second), command)


def _prepare(request: Request) -> Library | None:
    """Find every error of use that needs no process, and the library."""
    entry = LANGUAGES[request.language]
    reference = names_in_python(request.ref, ("reference", "shapes", "reduction"), required=("reference",))
    sources = {f"reference() in {request.ref.name}": reference}
    if entry.interface == "library":
        signature = signature_of(request)
        scalars = Accepted(frozenset(each.name for each in signature.scalars))
        require_known(request.values, {f"solve() in {request.solution.name}": scalars, **sources})
        scalars_of(request, signature)
        return find_library(request)
    # what run_kernel takes comes from setup
    setup = names_in_python(request.solution, ("setup",), required=("setup", "run_kernel"))
    require_known(request.values, {f"setup() in {request.solution.name}": setup, **sources})
    if entry.package is not None and importlib.util.find_spec(entry.package) is None:
        raise UnavailableError(
            f"--implementation={request.language.value} needs the package {entry.package!r}, which is not"
            f" installed; install {entry.distribution}"
        )
    return None


def _work(job: Job, worker: Worker[None]) -> tuple[int, Ended[None]]:
    """Have the solution checked and timed; give the seed of the second check, too, which a worker hears last."""
    seed = secrets.randbits(_SEED_BITS)
    if job.request.isolation:
        return seed, worker.call(job, replies={TIMED: lambda: seed})
    if job.request.interpreted:
        raise UsageError(
            "--no-isolation: Triton's interpreter is chosen when a process starts; run it in a worker, or set"
            " TRITON_INTERPRET=1 and name --implementation=torch"
        )
    from kernelmark.kernelfile.worker import compare

    told: list[dict[str, Any]] = []
    failure: Failure | None = None
    try:
        compare(job, ready=lambda: None, tell=told.append, draw_seed=None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a solution raises becomes its row
        failure = decode(encode(error))
    return seed, Ended(failure=failure, stages=(READY,), told=tuple(told), wall_s=float("inf"))


def _second_check(job: Job, judge: Worker[SecondCheck]) -> SecondCheck:
    """Have the answers of a solution that passed in its own process checked outside it."""
    ended = judge.call(job)
    return ended.answer or SecondCheck(broken=f"{ended.message}\n{_output(ended)}".strip())


def _error_of(ended: Ended[None], rows: tuple[Row, ...]) -> KernelmarkError | None:
    """Turn how the worker ended into the error that it means; ``None`` for one that ended well."""
    if ended.death is None and ended.failure is None:
        return None
    error = ended.failure.error if ended.failure else None
    if isinstance(error, ImplementationError | DeviceMemoryError):
        ours = not rows or rows[0].check is Check.FAILED
        return (CrashedError if ours else VerificationError)(str(error))
    if isinstance(error, KernelmarkError):
        return error
    output = _output(ended) if ended.death else ""
    evidence = f"\nthe last lines of its output:\n{output}" if output else ""
    if READY not in ended.stages:
        return UnavailableError(f"the worker did not get to the solution: {ended.message}{evidence}")
    late = ended.death is not None and ended.death.timed_out
    return (TimeLimitError if late else CrashedError)(f"the solution crashed: {ended.message}{evidence}")


def _output(ended: Ended[Any]) -> str:
    return "\n".join(filter(None, (ended.output, ended.errors)))


def _records(folder: Path) -> StoredRun | None:
    """Read what the worker recorded, up to the row that it died in; ``None`` if it recorded nothing."""
    try:
        return read_run(folder)
    except RecordError:
        return None


def _judged(
    request: Request,
    library: Library | None,
    stored: StoredRun,
    ended: Ended[None],
    error: KernelmarkError | None,
    second: SecondCheck | None,
) -> KernelRun:
    facts: dict[str, Any] = {"built with": library.built_with} if library else {}
    notes = {SOLUTION: list(library.notes) if library else []}
    for told in ended.told:
        facts |= told.get("facts", {})
        for name, texts in told.get("notes", {}).items():
            notes.setdefault(name, []).extend(texts)
    rows = stored.rows
    if second is not None:
        rows, error = twice_checked(rows, second), _error_of_second(second)
        facts["answers checked again"] = _told(second)
    try:
        rows = judged_rows(rows, notes, wall_s=ended.wall_s)
    except TimingError as found:
        rows, error = untimed_rows(rows, str(found)), error or found
    # with an error, a row with a time is one that was recorded before things went wrong
    late = any(row.timing for row in rows)
    crashed = isinstance(error, CrashedError)
    if error is not None and (not rows or late or (crashed and rows[0].check is not Check.FAILED)):
        rows = missing_rows(
            request, rows, error, ended.failure.traceback if ended.failure else _output(ended)
        )
    if crashed and ended.failure:
        facts["output"] = _output(ended)
    fate = Fate.of(error) if error is not None else rows[0].fate
    return KernelRun(request, stored.header, rows, Ending.of(fate), error, facts)


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


# --- what is written -----------------------------------------------------------------------------------


def _written(run: KernelRun, command: tuple[str, ...]) -> KernelRun:
    """Write the run as every other way in does, in a folder of its own below the output folder, and the documents."""
    from kernelmark.harness.provenance import now
    from kernelmark.report import write_reports

    folder = run.request.output_dir / "runs" / run.header.run
    header = run.header.model_copy(update={"command": command})
    writer = RunWriter.create(folder, header)
    for row in run.rows:
        writer.row(row)
    ended = RunOutcome.COMPLETED if run.outcome.passed else RunOutcome.FAILED
    writer.end(RunEnd(ended=now(), rows=writer.rows, outcome=ended))
    write_reports(folder)
    run = replace(run, header=header, folder=folder)
    run = replace(run, told=_summary(run, read_run(folder)))
    write_documents(run.request.output_dir, run.told)
    return run


def _summary(run: KernelRun, stored: StoredRun) -> dict[str, Any]:
    """Give what ``benchmark.json`` holds."""
    figures = variants(run.rows)
    return {
        "schema": "kernelmark.kernelfile",
        "schema_version": FORMAT_VERSION,
        "outcome": run.outcome.value,
        "message": str(run.error or ""),
        "header": _header(run),
        "variants": {
            row.implementation: {**_variant(row), **figures[row.implementation]} for row in run.rows
        },
        "speedups": speedups(run.rows),
        "remarks": [f"{each.subject}: {each.text}" for each in remarks(stored)],
        "output": run.facts.get("output", ""),
        "run": os.path.relpath(run.folder, run.request.output_dir),
    }


def _variant(row: Row) -> dict[str, Any]:
    told: dict[str, Any] = {
        "check": row.check.value,
        "backend": row.backend,
        "notes": [*row_notes(row), *(error_text(each) for each in row.outputs if each.passed)],
        "outputs": [each.model_dump(mode="json", exclude_none=True) for each in row.outputs],
    }
    return {**told, "traceback": row.traceback} if row.traceback else told


def _header(run: KernelRun) -> dict[str, Any]:
    request, device, facts = run.request, run.header.device, run.facts
    protocol = run.header.protocol
    flushed = " (caches flushed before every timed call)" if protocol.cache.value == "cold" else ""
    untimed = "nothing was timed"
    timer = {"device_events": "cuda_event", "host": "host_time"}.get(protocol.timer, "")
    return {
        "solution": str(request.solution),
        "implementation": request.language.value,
        "built with": facts.get("built with", ""),
        "reference": str(request.ref),
        "device": device.name,
        "arch": device.capability or "",
        "dimensions": dict(request.values),
        "correctness": VERDICTS[run.outcome],
        "timing method": f"{timer} ({protocol.timer})" if timer else protocol.timer,
        "warm-up rounds": request.num_warmup,
        "discarded rounds": request.discard_first,
        "trials asked for": request.num_trials,
        "prewarm calls": request.prewarm_calls,
        "cache mode": f"{protocol.cache.value}{flushed}",
        "cache probe": untimed if protocol.verify_only else probe_text(run.header.probe, protocol.cache),
        "timing scope": "device busy time of one call; variants interleaved in blocks",
        "seed": request.seed,
        "tolerances": facts.get("tolerances", ""),
        "buffers": facts.get("buffers", {}),
        "buffers from": facts.get("buffers from", ""),
        "isolated": request.isolation,
        "answers checked again": facts.get("answers checked again", "no"),
    }
