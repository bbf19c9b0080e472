"""The second half of a comparison: time what was checked, audit what was timed, and put it into rows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from kernelmark.device import Device
from kernelmark.harness.checking import Checked, Finding, audit_outputs, check_again
from kernelmark.harness.implementation import Implementation
from kernelmark.harness.plan import Planned
from kernelmark.harness.session import Session
from kernelmark.records import Check, Note, PassRecord, Ratio, Role, RooflineReading, Row, Timing
from kernelmark.roofline import Work, read_roofline
from kernelmark.stats import paired_ratio
from kernelmark.timing import Call, block_samples, open_timer, time_together

__all__ = ["failed_rows", "measure", "rows_of", "time_all"]

_AUDITED_PASSES = 2
"""Passes of each implementation, drawn at random, whose last outputs are looked at again."""

_SURE_PASSES = 10
"""Passes that even the slowest call is given (its ten samples), so that what is drawn does take place."""


@dataclass(slots=True)
class _Audit:
    """Looks again at some of the outputs that timed calls gave, and at the inputs they were given.

    An output that was looked at is poisoned afterwards: an implementation that goes on handing out the same
    memory without writing it again is wrong from then on.
    """

    checked: Checked
    device: Device
    chosen: dict[str, set[int]]
    seen: dict[str, int]

    @classmethod
    def drawn(cls, checked: Checked, device: Device, passes: int) -> _Audit:
        # not seeded: no implementation may know which of its calls are looked at
        draw, sure = random.SystemRandom(), min(passes, _SURE_PASSES)
        names = list(checked.findings)
        chosen = {name: set(draw.sample(range(sure), min(_AUDITED_PASSES, sure))) for name in names}
        return cls(checked, device, chosen, dict.fromkeys(names, 0))

    def __call__(self, name: str, record: PassRecord, outputs: object) -> None:
        index = self.seen[name]
        self.seen[name] += 1
        finding = self.checked.findings[name]
        if index in self.chosen[name] and not finding.failed:
            when = f"while it was timed (pass {index + 1})"
            audit_outputs(self.checked, finding, outputs, device=self.device, when=when)


def time_all(checked: Checked, session: Session) -> dict[str, Timing]:
    """Time every implementation that may be timed, under the same conditions, and audit the timed outputs.

    A failed audit turns the implementation's finding into a failure; the caller looks.

    Raises:
        TimingError: the instrument cannot vouch for a reading.
        Exception: whatever a timed call raises, unchanged.
    """
    case = checked.plan.case
    calls = {
        planned.name: _call(planned.implementation, case.inputs)
        for planned in checked.plan.entries
        if isinstance(planned.implementation, Implementation)
    }
    options = session.timing_options(count_copies=case.count_copies)
    audit = _Audit.drawn(checked, session.device, passes=2 * options.budget.blocks)
    timings = time_together(
        calls,
        session.device,
        timer=open_timer(session.options.timer, session.device),
        options=options,
        after_pass=audit,
    )
    for finding in checked.findings.values():
        if finding.planned.name in timings and not finding.failed:
            check_again(checked, finding, session.device)
    return timings


def measure(op: Any, timings: dict[str, Timing], session: Session) -> dict[str, RooflineReading]:
    """Relate each time to the work that the op says the call is; nothing where the op does not say."""
    evaluate = getattr(op, "eval_roofline", None)
    if evaluate is None or not timings:
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
        for name, timing in timings.items()
    }


def rows_of(
    checked: Checked, timings: dict[str, Timing], rooflines: dict[str, RooflineReading], op: Any
) -> list[Row]:
    """Make one row for each implementation of the plan, in its order."""
    ours = checked.findings[checked.plan.ours.name]
    ours_timing = timings.get(ours.planned.name)
    rows = []
    for finding in checked.findings.values():
        timing = timings.get(finding.planned.name) if finding.check.timeable else None
        ratio = _ratio(ours, ours_timing, finding, timing)
        roofline = rooflines.get(finding.planned.name) if timing else None
        rows.append(_row(checked, finding, op, timing=timing, ratio=ratio, roofline=roofline))
    return rows


def failed_rows(checked: Checked, op: Any, why_untimed: str) -> list[Row]:
    """Make the rows of a comparison that was not timed; those that passed their check say why."""
    for finding in checked.findings.values():
        if finding.check.timeable:
            finding.notes.append(why_untimed)
    return rows_of(checked, {}, {}, op)


def _call(implementation: Implementation, inputs: tuple[Any, ...]) -> Call:
    args = inputs if implementation.args is None else implementation.args
    return Call(implementation.run, args, implementation.reset)


def _ratio(ours: Finding, ours_timing: Timing | None, other: Finding, timing: Timing | None) -> Ratio | None:
    if other.planned.role is Role.OURS or ours_timing is None or timing is None:
        return None
    if not (ours.check.comparable and other.check.comparable):
        return None
    return paired_ratio(block_samples(ours_timing), block_samples(timing))


def _row(
    checked: Checked,
    finding: Finding,
    op: Any,
    *,
    timing: Timing | None,
    ratio: Ratio | None,
    roofline: RooflineReading | None,
) -> Row:
    case, planned = checked.plan.case, finding.planned
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
        controls=checked.controls if finding.check is not Check.UNAVAILABLE else (),
        timing=timing,
        ratio=ratio,
        roofline=roofline,
        traceback=finding.traceback,
        seed=case.seed,
    )


def _backend(planned: Planned, op: Any) -> str:
    told = getattr(planned.implementation, "backend", "")
    if not told and planned.role is Role.OURS:
        told = getattr(op, "backend", "")
    return str(told or "")
