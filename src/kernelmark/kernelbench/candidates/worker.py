"""The process in which a candidate runs: it is loaded, checked and timed, and leaves its records and answers.

The order matters, and is here: the problem first, then the baselines, then what the process looks like, and only
then the candidate. It prints nothing of its own and writes no report; the verdict is the parent's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernelmark.device import is_out_of_memory
from kernelmark.errors import (
    DeviceMemoryError,
    ImplementationError,
    KernelmarkError,
    ModelFileError,
    UsageError,
    VerificationError,
)
from kernelmark.harness import (
    Case,
    Implementation,
    Session,
    SessionOptions,
    Unavailable,
    make_plan,
    run_plan,
    use_session,
)
from kernelmark.isolation import TIMED, Channel, refuse_foreign_code_in_a_judge
from kernelmark.kernelbench.candidates.answers import leave_answers, look_at
from kernelmark.kernelbench.candidates.job import CANDIDATE, Baseline, Job
from kernelmark.kernelbench.candidates.problem import Problem, in_mode, load_problem
from kernelmark.models.state import Kept
from kernelmark.records import Stage
from kernelmark.text import in_short
from kernelmark.timing import Budget
from kernelmark.verify import Guard, Renewed, check_outputs
from kernelmark.verify.conduct import Conduct, after_call_on_cuda
from torchsched.ingress import make_model

__all__ = ["raising_its_own", "share_weights", "work"]

_BLOCKS = 10
_PREWARM_CALLS = 2

Notes = dict[str, list[str]]


def work(job: Job, channel: Channel) -> Notes:
    """Carry out ``job``; rows go to the run in its folder, and the answers for the second check beside it.

    Returns:
        What a reader must know about a row, by the row's name.

    Raises:
        KernelmarkError: whatever keeps the candidate from being verified; its own errors are causes.
    """
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
    with use_session(session), torch.no_grad():
        # everything a reading rests on is loaded and taken hold of before any file of the candidate's is
        session.open_timer()
        session.start()
        try:
            return _compare(job, session, channel)
        except Exception as error:
            told = raising_its_own(error, job.case_id)
            if told is error:
                raise
            raise told from error
        finally:
            session.close()


def _compare(job: Job, session: Session, channel: Channel) -> Notes:
    device = session.device.torch_name
    channel.stage(Stage.ASKED)
    problem = _problem(job, device)
    baselines = make_baselines(job, problem)
    conduct = Conduct(problem.model)
    channel.stage(Stage.IMPORT)
    model, unshared = load_candidate(job, problem, device)
    _require_untouched(conduct, job)
    kept = Kept(model)
    channel.stage(Stage.RUN)
    call = _checked_call(model, problem, conduct, job, on_cuda=device.startswith("cuda"))
    for number in range(_PREWARM_CALLS):
        problem.draws.renew()
        call()
        if number == 0:
            kept.after_first_call()
        kept.put_back()
    _require_untouched(conduct, job)
    channel.stage(Stage.TIME)
    conduct.calls_begin()
    plan = make_plan(_case(job, problem), (CANDIDATE, ours(model, kept, problem, conduct)), baselines)
    run_plan(plan, session)
    _require_untouched(conduct, job)
    seeds = [int(each) for each in channel.ask(TIMED)]
    channel.stage(Stage.CHECK)

    def from_the_start() -> Any:
        kept.put_back()
        return call()

    leave_answers(from_the_start, problem, seeds, job.folder, case_id=job.case_id)
    _require_untouched(conduct, job)
    return {CANDIDATE: [unshared]} if unshared else {}


def _problem(job: Job, device: str) -> Problem:
    """Make the problem; whatever is wrong with it is not the candidate's doing."""
    try:
        return load_problem(job, device)
    except UsageError as error:
        raise UsageError(f"the problem cannot be run: {error}") from error
    except Exception as error:
        if runs_out_of_memory(error):
            raise UsageError(
                f"{job.problem}: its own Model ran out of memory: {in_short(error)}; give more with --memory, or"
                " choose smaller sizes"
            ) from error
        raise UsageError(f"{job.problem}: its own Model raised {in_short(error)}") from error


def _case(job: Job, problem: Problem) -> Case:
    settings = job.settings
    facts = {
        "candidate": job.name,
        "problem": job.problem,
        "inputs": job.inputs,
        "init_args": job.init_args,
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


def _build_in(folder: Path) -> None:
    """Let torch build inline sources in a folder of the candidate's own, without the locks that a killed one left."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder)
    for lock in folder.glob("*/lock"):  # torch waits for them for ever
        lock.unlink(missing_ok=True)


# --- what is timed: the candidate, the problem's model as it is, and the same compiled; on the same arguments -----


def load_candidate(job: Job, problem: Problem, device: str) -> tuple[torch.nn.Module, str]:
    """Import a candidate, make its ``ModelNew`` and give it the problem's weights; with what was not shared.

    Raises:
        ModelFileError: it lacks the class, or its own code raised.
    """
    settings = job.settings
    refuse_foreign_code_in_a_judge(job.candidate)
    model = make_model(
        job.candidate,
        name="ModelNew",
        init_args=job.arguments,
        element=settings.element,
        seed=settings.seed,
    )
    in_mode(model.to(device), settings.mode)
    return model, share_weights(problem.model, model)


def share_weights(source: torch.nn.Module, target: torch.nn.Module) -> str:
    """Copy parameters and buffers whose names and shapes agree; say which do not, blank where all do."""
    theirs, mine = source.state_dict(), target.state_dict()
    agreeing = [name for name in theirs if name in mine and theirs[name].shape == mine[name].shape]
    for name in agreeing:
        mine[name].copy_(theirs[name])
    parts = [
        f"{whose} {', '.join(left)}"
        for whose, left in (
            ("Model's", [name for name in theirs if name not in agreeing]),
            ("ModelNew's", [name for name in mine if name not in agreeing]),
        )
        if left
    ]
    if not parts:
        return ""
    return f"weights not shared, since names or shapes differ: {'; '.join(parts)}; both were made with the same seed"


def ours(model: torch.nn.Module, kept: Kept, problem: Problem, conduct: Conduct) -> Implementation:
    """Give the candidate as the engine runs it: on inputs that it has never seen before each call."""
    return _implementation(model, kept, problem, "ModelNew", guards=(conduct,))


def make_baselines(job: Job, problem: Problem) -> dict[str, Implementation | Unavailable]:
    """Make the baselines; the compiled one is compiled here, before a candidate is there to see it."""
    made: dict[str, Implementation | Unavailable] = {}
    for baseline in job.settings.baselines:
        if baseline is Baseline.EAGER:
            made[baseline] = _implementation(problem.model, problem.kept, problem, "torch eager")
        else:
            made[baseline] = _inductor(problem)
    return made


def _inductor(problem: Problem) -> Implementation | Unavailable:
    function: Any = torch.compile(problem.model)
    inputs = problem.draws.arguments
    try:
        function(*inputs)
        problem.kept.put_back()
        problem.draws.renew()
        drawn = problem.draws.now()
        given = function(*drawn)  # guards on what the first call made are compiled for in the second
        verdict = check_outputs(given, problem.answer(*problem.draws.now()), problem.declaration)
    except Exception as error:  # noqa: BLE001 - eager works, so whatever this is comes from compiling
        return Unavailable(f"torch.compile failed: {in_short(error)}")
    if not verdict.passed:
        return Unavailable(f"its answer is not eager's: {' '.join(verdict.message.split())}")
    return _implementation(function, problem.kept, problem, "torch inductor")


def raising_its_own(error: Exception, case_id: str) -> KernelmarkError:
    """Turn what a candidate raised into the error that the engine gives for it; one of this package's stays."""
    if runs_out_of_memory(error):
        return DeviceMemoryError(f"{case_id}: {CANDIDATE} ran out of memory: {in_short(error)}")
    if isinstance(error, KernelmarkError):
        return error
    return ImplementationError(f"{case_id}: {CANDIDATE} raised {in_short(error)}")


def runs_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, when something was called or when its file was loaded."""
    cause = error.__cause__ if isinstance(error, ModelFileError) else error
    return cause is not None and is_out_of_memory(cause)


def _implementation(
    function: Callable[..., Any],
    kept: Kept,
    problem: Problem,
    backend: str,
    *,
    guards: tuple[Guard, ...] = (),
) -> Implementation:
    draws = problem.draws

    def reset() -> None:
        kept.put_back()
        draws.renew()

    if not draws.arguments:
        return Implementation(run=function, reset=reset, backend=backend, guards=guards)
    return Implementation(
        run=function,
        args=draws.arguments,
        reset=reset,
        guards=(*guards, Renewed(draws.arguments, draws.now)),
        backend=backend,
    )
