"""What carries out a plan and records its rows, and what it gives back: a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernelmark.errors import InstrumentConflictError, UnavailableError, UsageError, VerificationError
from kernelmark.harness.ambient import current_session
from kernelmark.harness.case import Case
from kernelmark.harness.elsewhere import carry_out_elsewhere, conflict_here
from kernelmark.harness.engine import Outcome, carry_out
from kernelmark.harness.implementation import Implementation, Unavailable, as_implementation
from kernelmark.harness.plan import Plan, make_plan, named
from kernelmark.harness.session import Session
from kernelmark.records import Check, Ratio, Row
from kernelmark.report.notes import note_text

__all__ = ["Comparison", "Runner", "run_plan"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows of one comparison, ours first; prints as a table."""

    case: str
    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def row(self, name: str) -> Row:
        """Give the row of the implementation called ``name``.

        Raises:
            UsageError: there is none; the message lists the names.
        """
        for row in self.rows:
            if row.implementation == name:
                return row
        raise UsageError(
            f"no implementation {name!r} in {self.case}; there are {[r.implementation for r in self.rows]}"
        )

    def ratio(self, name: str) -> Ratio | None:
        """Give baseline time over our time for the baseline ``name``; ``None`` where they cannot be compared."""
        return self.row(name).ratio

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows whose implementation failed its check."""
        return tuple(r for r in self.rows if r.check is Check.FAILED)

    def __rich__(self) -> Any:
        from kernelmark.report import console_table

        return console_table(self.rows)

    def __str__(self) -> str:
        from kernelmark.report import console_text

        return console_text(self.rows)

    __repr__ = __str__  # at a prompt the table is what was asked for, not every sample

    def _repr_html_(self) -> str:
        """Give the table to a notebook."""
        from kernelmark.report import html_table

        return html_table(self.rows)


class Runner:
    """Checks, times and records an op and what it is compared with.

    Args:
        op: An instance of the manifest op itself, not a wrapper and not a subclass.
        case: One of ``cases(type(op))``.

    Raises:
        UsageError: the op is something else, or the case is another op's.
    """

    def __init__(self, op: Any, case: Case) -> None:
        _check_op(op, case)
        self.op, self.case = op, case

    def compare(self, implementations: object = None) -> Comparison:
        """Check every implementation against the case's reference, then time all of them together.

        Args:
            implementations: A mapping from name to callable, :class:`Implementation` or
                :class:`Unavailable`; one of those alone is called ``baseline``. Nothing: the op alone.

        Raises:
            UsageError: a name or value that no run could use; nothing has run.
            VerificationError: a check failed; the rows are recorded, nothing was timed.
            TimingError: the instrument cannot vouch for a reading.
            UnavailableError: a baseline is unavailable and the session requires all of them.
        """
        __tracebackhide__ = True
        session = current_session()
        others = {} if implementations is None else named(implementations)
        plan = make_plan(self.case, (self._ours_name(), self._bind()), others)
        return run_plan(plan, session, op=self.op)

    def _bind(self) -> Implementation:
        binder = self.case.binder
        bound = self.op if binder is None else binder(self.op, self.case)
        implementation = as_implementation(self._ours_name(), bound)
        if isinstance(implementation, Unavailable):
            raise UsageError(f"the binder of {self.case.op} gave no implementation: {implementation.reason}")
        return implementation

    def _ours_name(self) -> str:
        return self.case.library_name


def run_plan(plan: Plan, session: Session, *, op: Any = None) -> Comparison:
    """Carry out a plan, record its rows, and raise what it ended with.

    Where an earlier profiler keeps the timer from being used in this process, all of it is done in a process of
    its own, if the plan can be sent there.

    Raises:
        VerificationError: a check failed, before or while timing; it carries the rows, which are recorded.
        TimingError: the instrument cannot vouch for a reading; the rows, without times, are recorded.
        Exception: whatever a timed call raises, unchanged; likewise.
    """
    __tracebackhide__ = True  # pytest shows the user's own lines then
    if kept := session.kept(plan.case.op, plan.case.id, (each.name for each in plan.entries)):
        return Comparison(plan.case.id, kept)
    session.start(plan.case.home)
    outcome = _carry_out(plan, session, op)
    for row in outcome.rows:
        session.record(row)
    comparison = Comparison(plan.case.id, outcome.rows)
    if isinstance(outcome.error, VerificationError):
        outcome.error.comparison = comparison
    if outcome.error is not None:
        raise outcome.error
    if session.options.require_baselines:
        _require_baselines(comparison)
    return comparison


def _carry_out(plan: Plan, session: Session, op: Any) -> Outcome:
    __tracebackhide__ = True
    conflict = conflict_here(session)
    if conflict is None:
        outcome = carry_out(plan, session, op)
        if not isinstance(outcome.error, InstrumentConflictError):
            return outcome
        conflict = outcome.error  # another profiler was used since the timer was last tried
    try:
        return carry_out_elsewhere(plan, session, op, conflict)
    except InstrumentConflictError as refusal:  # it cannot be sent: what can be checked here still is
        return carry_out(plan, session, op, refusal=refusal)


def _require_baselines(comparison: Comparison) -> None:
    missing = [
        f"{r.implementation} ({note_text(r.note)})" for r in comparison if r.check is Check.UNAVAILABLE
    ]
    if missing:
        raise UnavailableError(
            f"{comparison.case}: baselines are required here, but missing: {', '.join(missing)}"
        )


def _check_op(op: Any, case: Any) -> None:
    if not isinstance(case, Case):
        raise UsageError(f"Runner needs a Case from cases(Op), got {type(case).__name__}")
    wanted = case.op_class
    if wanted is None:
        raise UsageError(f"case {case.id} has no op class; Runner takes the cases that cases(Op) gives")
    found = op if isinstance(op, type) else type(op)
    if found is wanted and not isinstance(op, type):
        return
    if isinstance(op, type):
        what = f"the class {found.__name__} itself; make an instance with {found.__name__}(**case.arguments)"
    elif issubclass(found, wanted):
        what = f"{found.__name__}, a subclass of it; a report names the manifest op, so pass that"
    else:
        what = (
            f"{found.__module__}.{found.__qualname__}; adapt the call in the binder of the op's entry instead"
        )
    raise UsageError(f"case {case.id} is for {wanted.__name__}, and Runner got {what}")
