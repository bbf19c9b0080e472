"""A whole comparison in a process of its own, where its timer cannot follow a profiler that was used in this one.

Not its timing alone: what is timed must be what was checked, and outputs are looked at again while they are
timed. So the other process runs the engine from the reference to the rows, and this one records the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelmark.errors import InstrumentConflictError, TimingError
from kernelmark.harness.implementation import Implementation
from kernelmark.harness.plan import Plan
from kernelmark.harness.session import Session, SessionOptions, use_session
from kernelmark.records import Row, RunHeader
from kernelmark.roofline import Profile
from kernelmark.timing.elsewhere import find_conflict, in_another_process, note_of, refusal
from kernelmark.timing.sending import why_unsendable

__all__ = ["carry_out_elsewhere", "conflict_here"]


@dataclass(frozen=True, slots=True)
class _Request:
    plan: Plan
    op: Any
    options: SessionOptions
    header: RunHeader
    profile: Profile | None


@dataclass(frozen=True, slots=True)
class _Outcome:
    rows: tuple[Row, ...]
    error: Exception | None = None


def conflict_here(session: Session) -> InstrumentConflictError | None:
    """Say what keeps the session's timer from being used in this process, before anything of a plan runs."""
    if session.options.verify_only or session.moved:
        return None
    return find_conflict(session.options.timer, session.device)


def carry_out_elsewhere(
    plan: Plan, session: Session, op: Any, conflict: InstrumentConflictError
) -> tuple[list[Row], Exception | None]:
    """Carry ``plan`` out in another process; give its rows, with a note, and the error that it ended with.

    Raises:
        InstrumentConflictError: something in the plan cannot be sent; the message names it and the profiler that
            came first.
        TimingError: the process ended without an answer.
    """
    request = _Request(plan, op, session.options, session.start(), session.profile)
    try:
        outcome = in_another_process(_carry_out, request, conflict)
    except InstrumentConflictError:
        if culprit := _unsendable(plan, op):
            raise refusal(conflict, culprit) from conflict
        raise
    note = note_of(conflict).replace("timed", "checked and timed", 1)
    if outcome.error is not None:
        outcome.error.add_note(note)
    rows = [row.model_copy(update={"notes": (*row.notes, note)}) for row in outcome.rows]
    return rows, outcome.error


def _carry_out(request: _Request) -> _Outcome:
    from kernelmark.harness.runner import run_plan

    session = Session.continuing(request.options, request.header, request.profile)
    with use_session(session):
        try:
            run_plan(request.plan, session, op=request.op)
        except Exception as error:  # noqa: BLE001 - raised again by the process that asked
            told = TimingError(f"{type(error).__name__}: {error}") if why_unsendable(error) else error
            return _Outcome(tuple(session.rows), told)
    return _Outcome(tuple(session.rows))


def _unsendable(plan: Plan, op: Any) -> str:
    """Name what cannot be sent; blank if all of it can."""
    for planned in plan.entries:
        why = why_unsendable(planned.implementation)
        if why and isinstance(planned.implementation, Implementation):
            return f"the implementation {planned.name!r} cannot be sent: {why}"
    if why := why_unsendable(op):
        return f"the op {type(op).__name__} cannot be sent: {why}"
    if why := why_unsendable(plan.case):
        return f"the case {plan.case.id} cannot be sent: {why}"
    return ""
