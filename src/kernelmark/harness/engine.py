"""The engine: plan, findings, timings, rows. The only place that knows this order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelmark.harness.checking import check_all
from kernelmark.harness.measuring import rows_of, time_all
from kernelmark.harness.plan import Plan
from kernelmark.harness.session import Session
from kernelmark.records import Row

__all__ = ["Outcome", "carry_out"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a plan came to: its rows, and the error that it ended with."""

    rows: tuple[Row, ...]
    error: BaseException | None = None


def carry_out(plan: Plan, session: Session, op: Any, *, refusal: Exception | None = None) -> Outcome:
    """Check, time and audit, here and now; a failure is in the outcome, and nothing is recorded yet.

    Args:
        plan: What to do.
        session: With which device, timer and budget; it has been started.
        op: The op itself, where there is one.
        refusal: Why nothing can be timed here, where that is known.

    Raises:
        KernelmarkError: an error of use, or of the reference: there are no rows to speak of.
    """
    options = session.options
    findings = check_all(
        plan,
        session.device,
        other_values=options.other_values,
        call_unchecked=options.call_unchecked,
    )
    timings = time_all(findings, session, op, refusal=refusal)
    return Outcome(rows_of(timings, op), timings.error)
