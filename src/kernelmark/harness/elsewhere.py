"""A whole comparison in a process of its own, where its timer cannot follow a profiler that was used in this one.

Not its timing alone: what is timed must be what was checked, and outputs are looked at again while they are
timed. So the other process runs the engine from the reference to the rows, and this one records the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelmark.errors import InstrumentConflictError
from kernelmark.harness.implementation import Implementation
from kernelmark.harness.plan import Plan
from kernelmark.harness.session import Session, SessionOptions, use_session
from kernelmark.isolation import decode, encode
from kernelmark.records import Note, Row, RunHeader
from kernelmark.roofline import Profile
from kernelmark.timing.elsewhere import (
    find_conflict,
    in_another_process,
    note_of,
    refusal,
    why_unsendable,
)

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
    error: Mapping[str, Any] | None = None
    """As :func:`kernelmark.isolation.encode` has it."""


def conflict_here(session: Session) -> InstrumentConflictError | None:
    """Say what keeps the session's timer from being used in this process, before anything of a plan runs."""
    if session.options.verify_only or session.moved:
        return None
    return find_conflict(session.options.timer, session.device)


def carry_out_elsewhere(
    plan: Plan, session: Session, op: Any, conflict: InstrumentConflictError
) -> tuple[list[Row], BaseException | None]:
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
    note = note_of(conflict, "checked and timed")
    error = None if outcome.error is None else decode(outcome.error).error
    if error is not None:
        error.add_note(note)
    rows = [row.model_copy(update={"notes": (*row.notes, Note.free(note))}) for row in outcome.rows]
    return rows, error


def _carry_out(request: _Request) -> _Outcome:
    from kernelmark.harness.runner import run_plan

    session = Session.continuing(request.options, request.header, request.profile)
    with use_session(session):
        try:
            run_plan(request.plan, session, op=request.op)
        except Exception as error:  # noqa: BLE001 - raised again by the process that asked
            return _Outcome(tuple(session.rows), encode(error))
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
