"""The first half of a comparison: every implementation is checked before any is timed.

Order for each implementation: called twice on changed values at the same addresses, so that an answer kept
by address, shape or fingerprint is found; then its outputs poisoned, its state reset, called on the inputs
proper, inputs compared bit for bit, outputs compared with the reference's.
"""

from __future__ import annotations

import traceback as tracebacks
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernelmark.device import Device, is_out_of_memory
from kernelmark.errors import (
    DeviceMemoryError,
    ImplementationError,
    InputsModifiedError,
    KernelmarkError,
    OutOfBoundsError,
    UsageError,
    VerificationError,
)
from kernelmark.harness.implementation import Implementation, Unavailable
from kernelmark.harness.plan import Plan, Planned
from kernelmark.records import Check, ControlResult, OutputCheck
from kernelmark.text import first_line, in_short
from kernelmark.verify import (
    InputGuard,
    StaleGuard,
    Verdict,
    apart_from,
    check_outputs,
    detached_copy,
    differing,
    poison,
    require_reference,
    run_controls,
    untouched,
    unwritten,
    vacuous,
)

__all__ = ["Checked", "Finding", "audit_outputs", "check_again", "check_all"]


@dataclass(slots=True)
class Finding:
    """What checking one implementation found."""

    planned: Planned
    check: Check
    note: str = ""
    notes: list[str] = field(default_factory=list)
    outputs: tuple[OutputCheck, ...] = ()
    traceback: str | None = None
    error: VerificationError | None = None

    @property
    def failed(self) -> bool:
        """Whether this implementation stops the comparison."""
        return self.check is Check.FAILED

    def fail(self, error: VerificationError, *, cause: BaseException | None = None) -> None:
        """Turn this finding into a failure."""
        self.check, self.note, self.error = Check.FAILED, str(error), error
        if cause is not None:
            error.__cause__ = cause
            self.traceback = "".join(tracebacks.format_exception(cause))


@dataclass(slots=True)
class Checked:
    """All findings of one comparison, and what the audit after timing needs."""

    plan: Plan
    findings: dict[str, Finding]
    declaration: Any
    guard: InputGuard
    controls: tuple[ControlResult, ...] = ()
    expected: Any = None
    """The reference's result. It stays allocated, so that freed memory cannot happen to hold the answer."""
    has_expected: bool = False

    @property
    def failures(self) -> list[Finding]:
        """The findings that stop the comparison."""
        return [f for f in self.findings.values() if f.failed]


@dataclass(slots=True)
class _Expectation:
    """What the reference gave, or why it gave nothing."""

    value: Any = None
    known: bool = False
    status: Check = Check.UNVERIFIED
    note: str = ""
    controls: tuple[ControlResult, ...] = ()
    vacuous: str = ""


def check_all(plan: Plan, device: Device, *, other_values: bool = True) -> Checked:
    """Check every implementation of ``plan``; failures are findings, not exceptions.

    Args:
        plan: What to check.
        device: Where it runs.
        other_values: Whether each is called on other values first.

    Raises:
        UsageError: the case declares a check and has no reference.
        VerificationError: the reference itself raised, or wrote to the inputs.
    """
    case = plan.case
    declaration = case.verification
    require_reference(declaration, case.reference)
    guard = InputGuard(case.inputs)
    expectation = _expect(plan, declaration, guard, device)
    checked = Checked(
        plan,
        {},
        declaration,
        guard,
        expectation.controls,
        expectation.value,
        expectation.known,
    )
    for planned in plan.entries:
        if isinstance(planned.implementation, Unavailable):
            finding = Finding(planned, Check.UNAVAILABLE, planned.implementation.reason)
        elif planned.is_reference:
            finding = _inherit(planned, checked)
        else:
            finding = Finding(planned, expectation.status, expectation.note)
            if other_values and expectation.known and planned.implementation.noncomparable_reason is None:
                _call_on_other_values(finding, planned.implementation, checked, device)
            _check_one(finding, planned.implementation, checked, expectation, device)
        checked.findings[planned.name] = finding
    return checked


def audit_outputs(checked: Checked, finding: Finding, outputs: Any, *, device: Device, when: str) -> None:
    """Look again at outputs that a call gave after it had passed its check, and poison them.

    Fails the finding if they are wrong, or if the shared inputs have changed.
    """
    case, name = checked.plan.case, finding.planned.name
    _look_beside(finding, case.id)
    _look_at_inputs(finding, checked)
    if finding.failed:
        return
    if not checked.has_expected or not finding.check.comparable or finding.planned.is_reference:
        return
    implementation = finding.planned.implementation
    verdict = check_outputs(outputs, _answer(implementation, checked, device), checked.declaration)
    if not verdict.passed:
        finding.fail(
            VerificationError(f"{name} was right when it was checked and wrong {when}: {verdict.message}")
        )
        return
    if isinstance(implementation, Implementation):
        kept = (case.inputs, implementation.args or (), checked.expected)
        poison(apart_from(outputs, kept), 0)
        poison(implementation.owned_outputs, 0)


def check_again(checked: Checked, finding: Finding, device: Device) -> None:
    """Call once more after timing, and look at what that gives; fails the finding if it is wrong."""
    implementation = finding.planned.implementation
    if not isinstance(implementation, Implementation):
        return
    poison(implementation.owned_outputs, 1)
    outputs = _call(finding, implementation, checked, device)
    if not finding.failed:
        audit_outputs(checked, finding, outputs, device=device, when="when it was called again after timing")


def _expect(plan: Plan, declaration: Any, guard: InputGuard, device: Device) -> _Expectation:
    if not declaration.checked:
        return _Expectation(status=declaration.status, note=declaration.note)
    case, reference = plan.case, plan.case.reference
    if reference is None:  # refused before; said again for the type
        raise UsageError(f"{case.id} declares a check and has no reference")
    try:
        # a copy where the result is a view of the inputs: an implementation that writes them must not
        # be able to write the answer too
        value = detached_copy(reference(*case.inputs), case.inputs)
        device.synchronize()
    except KernelmarkError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            device.release_memory()
            return _Expectation(note=f"the reference ran out of memory: {first_line(error)}")
        raise ImplementationError(f"{case.id}: the reference raised {in_short(error)}") from error
    changed = guard.changed()
    if changed:
        guard.restore()
        raise InputsModifiedError(
            f"{case.id}: the reference wrote to the inputs that all implementations share"
            f" ({', '.join(changed)}); let it work on a copy"
        )
    controls = run_controls(value, case.inputs, declaration)
    return _Expectation(value, True, declaration.status, declaration.note, controls, vacuous(controls))


def _inherit(planned: Planned, checked: Checked) -> Finding:
    """The reference is not checked against itself: it takes the status that our op earned."""
    ours = checked.findings[checked.plan.ours.name]
    if ours.failed:
        return Finding(planned, Check.UNVERIFIED, f"the reference; {checked.plan.ours.name} failed its check")
    return Finding(planned, ours.check, ours.note, ["the case's own reference"])


def _check_one(
    finding: Finding,
    implementation: Implementation,
    checked: Checked,
    expectation: _Expectation,
    device: Device,
) -> None:
    reason = implementation.noncomparable_reason
    if reason is not None:
        finding.check, finding.note = Check.NONCOMPARABLE, reason
    kept = []
    # two poisons, so that no element can keep either by luck
    for which in (0, 1) if implementation.owned_outputs else (0,):
        poison(implementation.owned_outputs, which)
        outputs = _call(finding, implementation, checked, device)
        if finding.failed:
            return
        kept.append(untouched(implementation.owned_outputs, which))
        if expectation.known:
            expected = _answer(implementation, checked, device)
            _compare(finding, check_outputs(outputs, expected, checked.declaration))
        if finding.failed:
            return
    for element in unwritten(*kept) if len(kept) == 2 else ():
        finding.fail(
            VerificationError(f"{finding.planned.name} left part of its own output unwritten: {element}")
        )
    if expectation.vacuous and finding.check.comparable:
        finding.check, finding.note = Check.UNVERIFIED, expectation.vacuous


def _call(finding: Finding, implementation: Implementation, checked: Checked, device: Device) -> Any:
    """Make the one call whose outputs count, and fail the finding if it raises or writes the inputs."""
    name, case = finding.planned.name, checked.plan.case
    outputs = None
    try:
        outputs = _run_once(implementation, case.inputs, device)
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises becomes its row
        if is_out_of_memory(error):
            device.release_memory()
            raised: VerificationError = DeviceMemoryError(
                f"{case.id}: {name} ran out of memory: {first_line(error)}"
            )
        else:
            raised = ImplementationError(f"{case.id}: {name} raised {in_short(error)}")
        finding.fail(raised, cause=error)
    _look_beside(finding, case.id)
    _look_at_inputs(finding, checked)
    return outputs


def _answer(implementation: Implementation | Unavailable, checked: Checked, device: Device) -> Any:
    """Give what the call that is looked at should have given: the reference's answer to what it was called with."""
    drawn = implementation.drawn if isinstance(implementation, Implementation) else None
    reference = checked.plan.case.reference
    if drawn is None or reference is None:
        return checked.expected
    answer = reference(*drawn())
    device.synchronize()
    return answer


def _look_at_inputs(finding: Finding, checked: Checked) -> None:
    """Fail the finding if the inputs that it was called with are not what they were, and restore the shared ones."""
    case_id, name = checked.plan.case.id, finding.planned.name
    changed = checked.guard.changed()
    if changed:
        checked.guard.restore()
    if changed and not finding.failed:
        finding.fail(inputs_modified(case_id, name, changed))
    implementation = finding.planned.implementation
    if finding.failed or not isinstance(implementation, Implementation) or implementation.drawn is None:
        return
    written = differing(implementation.args, implementation.drawn())
    if written:
        finding.fail(
            InputsModifiedError(
                f"{case_id}: {name} wrote to its inputs ({', '.join(written)}); it must leave them as they were"
            )
        )


def _look_beside(finding: Finding, case_id: str) -> None:
    """Fail the finding if the guards around its buffers were written to, or if calls did what none may."""
    implementation = finding.planned.implementation
    if not isinstance(implementation, Implementation):
        return
    breach = implementation.breach() if implementation.breach is not None else ""
    if breach and not finding.failed:
        finding.fail(VerificationError(f"{case_id}: {finding.planned.name} {breach}"))
    damage = implementation.damage() if implementation.damage is not None else ""
    if damage and not finding.failed:
        finding.fail(
            OutOfBoundsError(
                f"{case_id}: {finding.planned.name} wrote outside its buffers: {damage};"
                " compare its loop bounds with the sizes of the buffers"
            )
        )


def inputs_modified(case_id: str, name: str, changed: list[str]) -> InputsModifiedError:
    """Say that ``name`` wrote to the shared inputs, and what to do."""
    return InputsModifiedError(
        f"{case_id}: {name} wrote to the inputs that all implementations share ({', '.join(changed)});"
        " give it private copies in Implementation(args=...) and restore them in reset"
    )


def _compare(finding: Finding, verdict: Verdict) -> None:
    finding.outputs = verdict.outputs
    if finding.check is Check.NONCOMPARABLE:
        finding.notes.append(f"for information, against the reference: {_summary(verdict)}")
        return
    if verdict.note and verdict.note not in finding.note:
        finding.note = f"{finding.note}; {verdict.note}" if finding.note else verdict.note
    if not verdict.passed:
        name = finding.planned.name
        finding.fail(VerificationError(f"{name} does not match the reference: {verdict.message}"))


def _call_on_other_values(
    finding: Finding, implementation: Implementation, checked: Checked, device: Device
) -> None:
    """Call twice on other values at the same addresses, and restore the inputs proper.

    What these calls return is not looked at: the values need not make sense to the op. They give a wrong
    cache something wrong to remember.
    """
    case = checked.plan.case
    private = InputGuard(implementation.args or ())
    stale = StaleGuard((case.inputs, implementation.args or ()), seed=case.seed)
    try:
        for change in (stale.scramble, stale.nudge):
            change()
            _run_once(implementation, case.inputs, device)
            checked.guard.restore()
            private.restore()
    except Exception as error:  # noqa: BLE001 - an op may refuse values that were only permuted
        finding.notes.append(
            f"not called on other values first: it raised {in_short(error)} on permuted inputs"
        )
    finally:
        checked.guard.restore()
        private.restore()


def _run_once(implementation: Implementation, inputs: tuple[Any, ...], device: Device) -> Any:
    if implementation.reset is not None:
        implementation.reset()
    run: Callable[..., Any] = implementation.run
    outputs = run(*(inputs if implementation.args is None else implementation.args))
    device.synchronize()
    return outputs


def _summary(verdict: Verdict) -> str:
    if not verdict.outputs:
        return verdict.message
    worst = max(verdict.outputs, key=lambda o: o.error_over_tolerance or 0.0)
    if worst.max_abs_error is None:
        return worst.message or verdict.message
    beyond = f"{worst.mismatched} of {worst.total} beyond {worst.tolerance}"
    return f"{worst.output}: worst error {worst.max_abs_error:.3g}, {beyond}"
