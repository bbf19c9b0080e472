"""A whole comparison in a process of its own, where its timer cannot follow a profiler that was used in this one.

Not its timing alone: what is timed must be what was checked, and outputs are looked at again while they are
timed. So the other process runs the engine from the reference to the rows, and this one records the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from kernelmark.errors import InstrumentConflictError
from kernelmark.harness.ambient import use_session
from kernelmark.harness.engine import Outcome, carry_out
from kernelmark.harness.implementation import Implementation
from kernelmark.harness.plan import Plan
from kernelmark.harness.session import Session, SessionOptions
from kernelmark.isolation import decode, encode
from kernelmark.records import Note, Row, RunHeader
from kernelmark.roofline import Profile
from kernelmark.timing import Timer
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
class _Told:
    rows: tuple[Row, ...]
    error: Mapping[str, Any] | None = None
    """As :func:`kernelmark.isolation.encode` has it."""


_TRIED: WeakSet[Session] = WeakSet()
"""Sessions whose timer was found to work here: trying it opens and closes a profiler."""


def conflict_here(session: Session) -> InstrumentConflictError | None:
    """Say what keeps the session's timer from being used in this process, before anything of a plan runs."""
    timer = session.options.timer
    if session.options.verify_only or session in _TRIED or isinstance(timer, Timer):
        return None
    conflict = find_conflict(timer, session.device)
    if conflict is None:
        _TRIED.add(session)
    return conflict


def carry_out_elsewhere(plan: Plan, session: Session, op: Any, conflict: InstrumentConflictError) -> Outcome:
    """Carry ``plan`` out in another process; its rows get a note, and so does the error that it ended with.

    Raises:
        InstrumentConflictError: something in the plan cannot be sent; the message names it and the profiler that
            came first.
        TimingError: the process ended without an answer.
    """
    request = _Request(plan, op, session.options, session.start(), session.profile)
    try:
        told = in_another_process(_carry_out, request, conflict)
    except InstrumentConflictError:
        if culprit := _unsendable(plan, op):
            raise refusal(conflict, culprit) from conflict
        raise
    note = note_of(conflict, "checked and timed")
    error = None if told.error is None else decode(told.error).error
    if error is not None:
        error.add_note(note)
    rows = tuple(row.model_copy(update={"notes": (*row.notes, Note.free(note))}) for row in told.rows)
    return Outcome(rows, error)


def _carry_out(request: _Request) -> _Told:
    session = Session(request.options, header=request.header, profile=request.profile)
    with use_session(session):
        outcome = carry_out(request.plan, session, request.op)
    return _Told(outcome.rows, None if outcome.error is None else encode(outcome.error))


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
