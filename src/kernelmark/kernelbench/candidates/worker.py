"""The process in which a candidate runs: it is loaded, checked and timed, and leaves records and an outcome.

The order matters, and is here: the problem first, then the baselines, then what the process looks like, and only
then the candidate. It prints nothing of its own and writes no report; the verdict is the parent's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernelmark.errors import (
    DeviceMemoryError,
    ImplementationError,
    ModelFileError,
    TimingError,
    UnavailableError,
    UsageError,
    VerificationError,
)
from kernelmark.harness import Case, Session, SessionOptions, make_plan, run_plan, use_session
from kernelmark.kernelbench.candidates.answers import leave_answers, look_at
from kernelmark.kernelbench.candidates.contestants import (
    load_candidate,
    make_baselines,
    ours,
    raising_its_own,
)
from kernelmark.kernelbench.candidates.job import CANDIDATE, SEEDS, Job
from kernelmark.kernelbench.candidates.problem import Problem, load_problem
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelfile.handover import READY, TIMED, Outcome
from kernelmark.kernelfile.jobs import ended
from kernelmark.models.state import Kept
from kernelmark.text import in_short
from kernelmark.timing import Budget, open_timer
from kernelmark.verify.conduct import Conduct
from kernelmark.verify.streams import after_call_on_cuda

__all__ = ["status_of", "work"]

_BLOCKS = 10
_POLL_S = 0.01
_PREWARM_CALLS = 2

Notes = dict[str, list[str]]


def work(job: Job) -> Outcome:
    """Carry out ``job``; rows go to the run in its folder, and the answers for the second check beside it."""
    notes: Notes = {}
    try:
        with torch.no_grad():
            _work(job, notes)
    except BaseException as error:  # the outermost frame: everything becomes the outcome
        if isinstance(error, KeyboardInterrupt):
            raise
        told = ended(error, notes)
        return Outcome(status_of(error).value, told.message, told.traceback, notes)
    return Outcome(notes=notes)


def status_of(error: BaseException) -> Status:
    """Say what an error of a worker means for its candidate."""
    cause = error.__cause__
    match error:
        case ModelFileError():
            return _of_loading(cause, str(error))
        case DeviceMemoryError():
            return Status.OUT_OF_MEMORY
        case ImplementationError():
            return Status.COMPILE_FAILURE if _is_of_a_compiler(cause, str(error)) else Status.RUN_FAILURE
        case VerificationError():
            failed = {row.implementation for row in error.comparison.failed} if error.comparison else ()
            return Status.WRONG if not failed or CANDIDATE in failed else Status.UNVERIFIED
        case TimingError():
            return Status.UNVERIFIED
        case UnavailableError() | UsageError():
            return Status.UNAVAILABLE
        case MemoryError() | torch.OutOfMemoryError():
            return Status.OUT_OF_MEMORY
        case Exception():
            return Status.RUN_FAILURE
    return Status.CRASH


def _of_loading(cause: BaseException | None, message: str) -> Status:
    if isinstance(cause, ModuleNotFoundError) or any(word in message for word in _LACKING):
        return Status.UNAVAILABLE
    if _is_of_a_compiler(cause, message):
        return Status.COMPILE_FAILURE
    if isinstance(cause, MemoryError | torch.OutOfMemoryError):
        return Status.OUT_OF_MEMORY
    return Status.IMPORT_FAILURE


_LACKING = (
    "CUDA_HOME",
    "Ninja is required",
    "nvcc",
    "No CUDA GPUs are available",
    "Torch not compiled with CUDA",
)
"""What torch says where a compiler or a device is missing."""


def _is_of_a_compiler(cause: BaseException | None, message: str) -> bool:
    return "Error building extension" in message or "CompilationError" in type(cause).__name__


def _work(job: Job, notes: Notes) -> None:
    settings = job.settings
    _build_in(job.extensions)
    count = settings.iterations
    session = Session(
        SessionOptions(
            device=settings.device,
            cache=settings.cache,
            budget=Budget(min_count=count, max_count=count, blocks=min(_BLOCKS, count // 2)),
            out=job.folder,
            ceilings=False,
        )
    )
    with use_session(session):
        # everything a reading rests on is loaded and taken hold of before any file of the candidate's is
        open_timer(session.options.timer, session.device)
        session.start()
        (job.folder / READY).touch()
        try:
            _compare(job, session, notes)
        finally:
            session.close()


def _compare(job: Job, session: Session, notes: Notes) -> None:
    device = session.device.torch_name
    problem = _problem(job, device)
    baselines = make_baselines(job, problem)
    conduct = Conduct(problem.model)
    model, unshared = load_candidate(job, problem, device)
    if unshared:
        notes[CANDIDATE] = [unshared]
    _require_untouched(conduct, job)
    kept = Kept(model)
    call = _checked_call(model, problem, conduct, job, on_cuda=device.startswith("cuda"))
    for number in range(_PREWARM_CALLS):
        problem.draws.renew()
        try:
            call()
        except Exception as error:
            raise raising_its_own(error, job.case_id) from error
        if number == 0:
            kept.after_first_call()
        kept.put_back()
    _require_untouched(conduct, job)
    conduct.calls_begin()
    plan = make_plan(_case(job, problem), (CANDIDATE, ours(model, kept, problem, conduct)), baselines)
    run_plan(plan, session)
    _require_untouched(conduct, job)
    seeds = _await_seeds(job.folder)

    def from_the_start() -> Any:
        kept.put_back()
        return call()

    leave_answers(from_the_start, problem, seeds, job.folder, case_id=job.case_id)
    _require_untouched(conduct, job)


def _problem(job: Job, device: str) -> Problem:
    """Make the problem; whatever is wrong with it is not the candidate's doing."""
    try:
        return load_problem(job, device)
    except UsageError as error:
        raise UsageError(f"the problem cannot be run: {error}") from error
    except Exception as error:
        raise UsageError(f"{job.problem}: its own Model raised {in_short(error)}") from error


def _case(job: Job, problem: Problem) -> Case:
    settings = job.settings
    facts = {
        "candidate": job.name,
        "problem": job.problem,
        "inputs": job.inputs,
        "init_args": repr(list(job.init_args)),
        "mode": settings.mode.value,
        "tolerance": str(problem.declaration.tolerance),
        "threads": torch.get_num_threads(),
    }
    return Case(job.case_id, lambda: _Workload(problem), params=facts, seed=settings.seed)


class _Workload:
    """The problem as a case of the engine."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.reference = problem, problem.answer

    def gen_inputs(self) -> tuple[Any, ...]:
        return self.problem.draws.base

    def verification(self) -> Any:
        return self.problem.declaration


def _checked_call(
    model: torch.nn.Module, problem: Problem, conduct: Conduct, job: Job, *, on_cuda: bool
) -> Callable[[], Any]:
    """Give a call of the candidate that also looks at when its result was there, and at what it left behind."""
    previous = ""

    def plain() -> Any:
        return model(*problem.draws.arguments)

    def call() -> Any:
        nonlocal previous
        if on_cuda:
            given, breach, previous = after_call_on_cuda(plain, look_at, previous)
            breach = breach or conduct.breach()
        else:
            given, breach = conduct.after_call(plain, look_at)
        if breach:
            raise VerificationError(f"{job.case_id}: {CANDIDATE} {breach}")
        return given

    return call


def _require_untouched(conduct: Conduct, job: Job) -> None:
    if told := conduct.tampering():
        raise VerificationError(f"{job.case_id}: {CANDIDATE} {told}")


def _await_seeds(folder: Path) -> list[int]:
    """Tell the parent that the timing is over, and wait for what it draws then."""
    (folder / TIMED).touch()
    while not (folder / SEEDS).exists():
        time.sleep(_POLL_S)
    return [int(each) for each in json.loads((folder / SEEDS).read_text(encoding="utf-8"))]


def _build_in(folder: Path) -> None:
    """Let torch build inline sources in a folder of the candidate's own, without the locks that a killed one left."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder)
    for lock in folder.glob("*/lock"):  # torch waits for them for ever
        lock.unlink(missing_ok=True)
