"""The second and third phase: from findings to timings, with an audit of what was timed, and from timings to rows."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kernelmark.harness.checking import Finding, Findings, Watch, audit_outputs, check_again
from kernelmark.harness.plan import Planned
from kernelmark.harness.session import Session
from kernelmark.records import Check, Note, PassRecord, Ratio, Role, RooflineReading, Row, Timing
from kernelmark.roofline import Work, read_roofline
from kernelmark.stats import paired_ratio
from kernelmark.timing import Call, block_samples, time_together

__all__ = ["Timings", "rows_of", "time_all"]

_AUDITED_PASSES = 2
"""Passes of each implementation, drawn at random from all, whose last outputs are looked at again."""

_SURE_PASSES = 10
"""Passes that even the slowest call is given (its ten samples): one more is drawn from these, so that one surely
takes place where a slow call makes fewer passes than the budget has."""


@dataclass(frozen=True, slots=True)
class Timings:
    """What timing gave, and the findings as the audit left them."""

    findings: Findings
    timed: Mapping[str, Timing] = field(default_factory=dict)
    rooflines: Mapping[str, RooflineReading] = field(default_factory=dict)
    why_none: str = ""
    error: Exception | None = None
    """What the comparison ends with, once its rows are recorded."""


class _Audit:
    """Looks again at some of the outputs that timed calls gave, and asks their guards.

    An output that was looked at is poisoned afterwards: an implementation that goes on handing out the same
    memory without writing it again is wrong from then on.
    """

    def __init__(self, watches: Mapping[str, Watch], found: Mapping[str, Finding], passes: int) -> None:
        self._watches, self.found = watches, dict(found)
        # not seeded: no implementation may know which of its calls are looked at
        draw = random.SystemRandom()
        self._chosen = {
            name: {
                *draw.sample(range(passes), min(_AUDITED_PASSES, passes)),
                draw.randrange(min(passes, _SURE_PASSES)),
            }
            for name in watches
        }
        self._seen = dict.fromkeys(watches, 0)

    def __call__(self, name: str, record: PassRecord, outputs: object) -> None:
        index = self._seen[name]
        self._seen[name] += 1
        if index in self._chosen[name] and not self.found[name].failed:
            when = f"while it was timed (pass {index + 1})"
            self.found[name] = audit_outputs(self._watches[name], self.found[name], outputs, when=when)


def time_all(findings: Findings, session: Session, op: Any, *, refusal: Exception | None = None) -> Timings:
    """Time every implementation that may be timed, under the same conditions, and audit the timed outputs.

    Args:
        findings: What the check found.
        session: How to time, and on what.
        op: Says how much work a call is, where it has ``eval_roofline``.
        refusal: Why nothing can be timed here, where that is known.
    """
    if findings.stopped or session.options.verify_only:
        return Timings(findings, why_none=findings.stopped, error=findings.error)
    try:
        if refusal is not None:
            raise refusal
        found, timed = _timed(findings, session)
    except Exception as error:  # noqa: BLE001 - raised again by the runner, when the rows are recorded
        return Timings(findings, why_none=f"not timed: {type(error).__name__}: {error}", error=error)
    findings = replace(findings, found=found)
    if findings.stopped:
        return Timings(findings, why_none=findings.stopped, error=findings.error)
    return Timings(findings, timed, _rooflines(op, timed, session))


def _timed(findings: Findings, session: Session) -> tuple[Mapping[str, Finding], dict[str, Timing]]:
    plan = findings.plan
    watches = {name: each for name, each in findings.watches.items() if not findings.found[name].failed}
    if not watches:
        return findings.found, {}
    options = session.timing_options(count_copies=plan.case.count_copies)
    audit = _Audit(watches, findings.found, passes=options.passes)
    timed = time_together(
        {name: _call(watch) for name, watch in watches.items()},
        session.device,
        timer=session.open_timer(),
        options=options,
        after_pass=audit,
    )
    again = findings.answer.asked or session.options.call_unchecked
    for name, watch in watches.items() if again else ():
        if not audit.found[name].failed:
            audit.found[name] = check_again(watch, audit.found[name])
    return audit.found, timed


def _call(watch: Watch) -> Call:
    implementation = watch.implementation
    args = watch.plan.case.inputs if implementation.args is None else implementation.args
    return Call(implementation.run, args, implementation.reset)


def _rooflines(op: Any, timed: Mapping[str, Timing], session: Session) -> dict[str, RooflineReading]:
    """Relate each time to the work that the op says the call is; nothing where the op does not say."""
    evaluate = getattr(op, "eval_roofline", None)
    if evaluate is None or not timed:
        return {}
    told = evaluate()
    work = told if isinstance(told, Work) else Work(*told)
    device = session.start().device
    return {
        name: read_roofline(
            work,
            timing.device_busy.median_ns,
            session.profile,
            cache=timing.cache,
            last_level_cache_bytes=device.last_level_cache_bytes,
        )
        for name, timing in timed.items()
    }


def rows_of(timings: Timings, op: Any) -> tuple[Row, ...]:
    """Make one row for each implementation of the plan, in its order; those without a time say why."""
    return tuple(_row(timings, finding, op) for finding in timings.findings.found.values())


def _row(timings: Timings, finding: Finding, op: Any) -> Row:
    findings = timings.findings
    case, planned = findings.plan.case, finding.planned
    timing = timings.timed.get(planned.name) if finding.check.timeable else None
    if timings.why_none and finding.check.timeable:
        finding = finding.noting(timings.why_none)
    return Row(
        case=case.id,
        op=case.op,
        implementation=planned.name,
        role=planned.role,
        backend=_backend(planned, op),
        check=finding.check,
        note=Note.free(finding.note) if finding.note else None,
        notes=tuple(map(Note.free, finding.notes)),
        params=case.params,
        count_copies=case.count_copies,
        outputs=finding.outputs,
        controls=findings.answer.controls if finding.check is not Check.UNAVAILABLE else (),
        timing=timing,
        ratio=_ratio(timings, finding) if timing else None,
        roofline=timings.rooflines.get(planned.name) if timing else None,
        traceback=finding.traceback,
        seed=case.seed,
    )


def _ratio(timings: Timings, other: Finding) -> Ratio | None:
    ours = timings.findings.found[timings.findings.plan.ours.name]
    if other.planned.role is Role.OURS or not (ours.check.comparable and other.check.comparable):
        return None
    ours_timing = timings.timed.get(ours.planned.name)
    if ours_timing is None:
        return None
    return paired_ratio(block_samples(ours_timing), block_samples(timings.timed[other.planned.name]))


def _backend(planned: Planned, op: Any) -> str:
    told = getattr(planned.implementation, "backend", "")
    if not told and planned.role is Role.OURS:
        told = getattr(op, "backend", "")
    return str(told or "")
