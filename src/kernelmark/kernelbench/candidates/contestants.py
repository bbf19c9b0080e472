"""What is timed: the candidate, the problem's model as it is, and the same compiled; all on the same arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelmark.device import is_out_of_memory
from kernelmark.errors import DeviceMemoryError, ImplementationError, KernelmarkError, ModelFileError
from kernelmark.harness import Implementation, Unavailable
from kernelmark.isolation import refuse_foreign_code_in_a_judge
from kernelmark.kernelbench.candidates.job import CANDIDATE, Baseline, Job
from kernelmark.kernelbench.candidates.problem import Problem, in_mode
from kernelmark.models.state import Kept
from kernelmark.text import in_short
from kernelmark.verify import Guard, Renewed, check_outputs
from kernelmark.verify.conduct import Conduct
from torchsched.ingress import make_model

__all__ = [
    "load_candidate",
    "make_baselines",
    "ours",
    "raising_its_own",
    "runs_out_of_memory",
    "share_weights",
]


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
