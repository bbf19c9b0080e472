"""The process in which a solution runs: loads, checks and times, and leaves records and an outcome in a folder.

It prints nothing of its own and writes no report: statistics, verdict and report are the parent's.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelmark.errors import VerificationError
from kernelmark.harness import Session, SessionOptions, run_plan, use_session
from kernelmark.kernelfile.handover import FACTS, READY, TIMED, Job, Outcome, write_json
from kernelmark.kernelfile.jobs import Orders, ended, serve
from kernelmark.kernelfile.request import SOLUTION, Request
from kernelmark.timing import Budget, open_timer

__all__ = ["budget_of", "timer_for", "work"]

_WHATEVER_MS = 1e12
"""No budget of time, thirty years: a count was asked for, and nothing is to be said of a budget that nobody gave."""

Notes = dict[str, list[str]]


def work(job: Job, seed: Callable[[], int] | None = None) -> Outcome:
    """Carry out ``job``; the rows go to the run in its folder.

    Args:
        job: What to do.
        seed: Gives, once the timing is over, what the values of the second check are drawn with; without it
            no answers are left for one.
    """
    notes: Notes = {}
    try:
        _work(job, seed, notes)
    except BaseException as error:  # the outermost frame: everything becomes the outcome
        if isinstance(error, KeyboardInterrupt):
            raise
        return ended(error, notes)
    return Outcome(notes=notes)


def _work(job: Job, seed: Callable[[], int] | None, notes: Notes) -> None:
    from kernelmark.kernelfile.preparing import device_of

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
        # everything a reading rests on is loaded and taken hold of before any file of the user's is
        open_timer(timer, session.device)
        session.start()
        (job.folder / READY).touch()
        try:
            _compare(job, seed, session, notes)
        finally:
            session.close()


def _compare(job: Job, seed: Callable[[], int] | None, session: Session, notes: Notes) -> None:
    from kernelmark.kernelfile.answers import leave_answers
    from kernelmark.kernelfile.binding import bind
    from kernelmark.kernelfile.preparing import prepare

    prepared = prepare(job.request, job.library, session.device.torch_name)
    write_json(job.folder / FACTS, {**prepared.facts, "timer": session.timer_name})
    bound = bind(job.request, prepared)
    notes |= bound.notes
    if session.options.verify_only:
        notes.setdefault(SOLUTION, []).append(
            "checked in Triton's interpreter on the CPU; the interpreter's time says nothing, so none is given"
        )
    if bound.compiled is not None:
        bound.compiled.start()
    try:
        run_plan(bound.plan, session)
    except VerificationError as error:
        # the solution gave an answer, and it, or a baseline's, is wrong
        beside = bound.read_beside() if type(error) is VerificationError else ""
        if beside:
            notes.setdefault(SOLUTION, []).append(beside)
            error.args = (f"{error}\n{beside}",)
        raise
    finally:
        told = bound.compiled.note() if bound.compiled is not None else None
        if told:
            notes["torch-compile"] = [told]
    if seed is not None:
        (job.folder / TIMED).touch()
        leave_answers(
            bound.own,
            prepared.solution,
            inout=prepared.reference.inout,
            seed=seed(),
            folder=job.folder,
            ours=job.library is not None,
        )


def budget_of(request: Request) -> Budget:
    """Give the exact counts that were asked for, whatever they cost; a round that is not kept is one more warm-up."""
    return Budget(
        sample_ms=_WHATEVER_MS,
        prepare_ms=_WHATEVER_MS,
        min_count=request.num_trials,
        max_count=request.num_trials,
        blocks=request.blocks,
        warmup_count=request.num_warmup + request.discard_first,
    )


def timer_for(request: Request, device: str) -> str | None:
    """Choose the instrument: the one asked for, events on CUDA devices, elsewhere the device's own."""
    return request.timer or ("device_events" if device.startswith("cuda") else None)


def _carry_out(job: Job, orders: Orders) -> Outcome:
    return work(job, orders.seed)


if __name__ == "__main__":
    serve(_carry_out)
