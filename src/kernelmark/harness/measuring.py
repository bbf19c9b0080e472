"""The second half of a comparison: time what was checked, audit what was timed, and put it into rows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from kernelmark.errors import VerificationError
from kernelmark.harness.checking import Checked, Finding, inputs_modified, recheck
from kernelmark.harness.implementation import Implementation
from kernelmark.harness.plan import Planned
from kernelmark.harness.session import Session
from kernelmark.records import Check, PassRecord, Ratio, Role, RooflineReading, Row, Timing
from kernelmark.roofline import Work, find_profile, read_roofline
from kernelmark.stats import paired_ratio
from kernelmark.timing import Call, open_timer, time_together

__all__ = ["failed_rows", "measure", "rows_of", "time_all"]

_AUDITED_PASSES = 3
"""Passes of each implementation whose last outputs are compared again: two at random, and the last one."""


@dataclass(slots=True)
class _Audit:
    """Looks again at some of the outputs that timed calls gave, and at the inputs they were given."""

    checked: Checked
    passes: int

    def __post_init__(self) -> None:
        # the seed differs from run to run, so that no implementation can know which calls are looked at
        draw = random.SystemRandom()
        count = min(_AUDITED_PASSES - 1, self.passes)
        self._chosen = {
            name: {*draw.sample(range(self.passes), count), self.passes - 1} for name in self.checked.findings
        }

    def __call__(self, name: str, index: int, outputs: Any) -> None:
        if index not in self._chosen[name]:
            return
        finding = self.checked.findings[name]
        if finding.failed:
            return
        changed = self.checked.guard.changed()
        if changed:
            self.checked.guard.restore()
            finding.fail(inputs_modified(self.checked.plan.case.id, name, changed))
            return
        verdict = recheck(self.checked, name, outputs)
        if verdict is not None and not verdict.passed:
            finding.fail(
                VerificationError(
                    f"{name} was right when it was checked and wrong while it was timed"
                    f" (pass {index + 1} of {self.passes}): {verdict.message}"
                )
            )


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
    audit = _Audit(checked, passes=2 * options.budget.blocks)
    return time_together(
        calls,
        session.device,
        timer=open_timer(session.options.timer, session.device),
        options=options,
        after_pass=audit,
    )


def measure(op: Any, timings: dict[str, Timing], session: Session) -> dict[str, RooflineReading]:
    """Relate each time to the work that the op says the call is; nothing where the op does not say."""
    evaluate = getattr(op, "eval_roofline", None)
    if evaluate is None or not timings:
        return {}
    told = evaluate()
    work = told if isinstance(told, Work) else Work(*told)
    device = session.start().device
    profile = find_profile(device)
    return {
        name: read_roofline(
            work,
            timing.device_busy.median_ns,
            profile,
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
    return paired_ratio(_blocks(ours_timing.passes), _blocks(timing.passes))


def _blocks(passes: tuple[PassRecord, ...]) -> list[list[float]]:
    blocks: dict[int, list[float]] = {}
    for one in passes:
        blocks.setdefault(one.block, []).extend(one.device_busy_ns)
    return [blocks[key] for key in sorted(blocks)]


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
        note=finding.note,
        notes=tuple(finding.notes),
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
