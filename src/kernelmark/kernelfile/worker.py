"""What a solution's own process does: loads, checks and times it, and leaves its run in the job's folder.

It prints nothing of its own and writes no report: statistics, verdict and report are the parent's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelmark.errors import CrashedError, KernelmarkError, VerificationError
from kernelmark.harness import Session, SessionOptions, run_plan, use_session
from kernelmark.harness.loading import forget_modules
from kernelmark.isolation import READY, TIMED, Channel, describe
from kernelmark.kernelfile.binding import Bound, bind
from kernelmark.kernelfile.handover import Job
from kernelmark.kernelfile.request import SOLUTION, Request
from kernelmark.kernelfile.second_check import leave_answers
from kernelmark.kernelfile.solutions import device_of, prepare
from kernelmark.timing import Budget, open_timer

__all__ = ["budget_of", "compare", "timer_for", "work"]

_WHATEVER_MS = 1e12
"""No budget of time, thirty years: a count was asked for, and nothing is to be said of a budget that nobody gave."""


def work(job: Job, channel: Channel) -> None:
    """Carry out ``job`` in this process; what the worker is called with."""
    try:
        compare(
            job,
            ready=lambda: channel.stage(READY),
            tell=channel.tell,
            draw_seed=lambda: int(channel.ask(TIMED)),
        )
    finally:
        forget_modules()


def compare(
    job: Job,
    *,
    ready: Callable[[], object],
    tell: Callable[[dict[str, Any]], object],
    draw_seed: Callable[[], int] | None,
) -> None:
    """Check and time the solution; the rows go to the run in the job's folder.

    Args:
        job: What to compare.
        ready: Called when everything a reading rests on is there, before any file of the user's is loaded.
        tell: Gets ``{"facts": ...}`` and ``{"notes": {row: [text]}}`` as they are found out.
        draw_seed: Gives, once the timing is over, what the values of the second check are drawn with; without it
            no answers are left for one.

    Raises:
        CrashedError: the solution raised while it was timed.
        VerificationError: an answer is wrong, or a baseline raised while it was timed.
    """
    request, device = job.request, device_of(job.request)
    timer = timer_for(request, device)
    session = Session(
        SessionOptions(
            device=device,
            timer=timer,
            verify_only=request.interpreted,
            cache=request.cache,
            budget=budget_of(request),
            out=job.folder,
            ceilings=False,
        )
    )
    with use_session(session):
        open_timer(timer, session.device)
        session.start()
        ready()
        try:
            prepared = prepare(job, session.device.torch_name)
            tell({"facts": {**prepared.facts, "timer": session.timer_name}})
            bound = bind(request, prepared)
            if request.interpreted:
                bound.notes[SOLUTION].append(
                    "checked in Triton's interpreter on the CPU; the interpreter's time says nothing, so none is given"
                )
            _run(bound, session, tell)
            if draw_seed is not None:
                leave_answers(
                    bound.own,
                    prepared.solution,
                    inout=prepared.reference.inout,
                    seed=draw_seed(),
                    folder=job.folder,
                )
        finally:
            session.close()


def _run(bound: Bound, session: Session, tell: Callable[[dict[str, Any]], object]) -> None:
    try:
        run_plan(bound.plan, session)
    except KernelmarkError as error:
        # the solution gave an answer, and it, or a baseline's, is wrong
        reason = bound.explain(error) if type(error) is VerificationError else ""
        if reason:
            bound.notes[SOLUTION].append(reason)
            error.args = (f"{error}\n{reason}",)
        raise
    except Exception as error:
        if any(error is each for each in bound.baseline_errors):
            raise VerificationError(f"a baseline crashed while it was timed: {describe(error)}") from error
        raise CrashedError(f"the solution crashed: {describe(error)}") from error
    finally:
        graphs = bound.compiled.recompiled() if bound.compiled is not None else 0
        if graphs:
            bound.notes["torch-compile"] = [
                f"torch compiled {graphs} more graphs after its first two calls, so its times hold compilations"
            ]
        tell({"notes": bound.notes})


def budget_of(request: Request) -> Budget:
    """Give the exact counts that were asked for, whatever they cost; a round that is not kept is one more warm-up."""
    return Budget(
        sample_ms=_WHATEVER_MS,
        prepare_ms=_WHATEVER_MS,
        min_count=request.num_trials,
        max_count=request.num_trials,
        warmup_count=request.num_warmup + request.discard_first,
    )


def timer_for(request: Request, device: str) -> str | None:
    """Choose the instrument: the one asked for, events on CUDA devices, elsewhere the device's own."""
    return request.timer or ("device_events" if device.startswith("cuda") else None)
