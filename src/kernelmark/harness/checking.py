"""The first phase of a comparison, from a plan to findings: every implementation is checked before any is timed.

Order for each implementation: called twice on changed values at the same addresses, so that an answer kept
by address, shape or fingerprint is found; then its outputs poisoned, its state reset, called on the inputs
proper, its guards asked, outputs compared with the reference's. An answer that is the same on the changed values
shows nothing: other values are tried, and where none makes a difference nothing is verified.
"""

from __future__ import annotations

import traceback as tracebacks
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kernelmark.device import Device, is_out_of_memory
from kernelmark.errors import (
    DeviceMemoryError,
    ImplementationError,
    InputsModifiedError,
    KernelmarkError,
    UsageError,
    VerificationError,
)
from kernelmark.harness.implementation import Implementation, Unavailable
from kernelmark.harness.other_values import OtherValues, run_once
from kernelmark.harness.plan import Plan, Planned
from kernelmark.records import Check, ControlResult, OutputCheck
from kernelmark.text import first_line, in_short
from kernelmark.verify import (
    Guard,
    InputGuard,
    OwnedOutputs,
    Settings,
    Verdict,
    apart_from,
    check_outputs,
    detached_copy,
    fingerprint,
    poison,
    require_answer,
    require_reference,
    run_controls,
    vacuous,
)

__all__ = ["Answer", "Finding", "Findings", "Watch", "audit_outputs", "check_again", "check_all"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What checking one implementation found."""

    planned: Planned
    check: Check
    note: str = ""
    notes: tuple[str, ...] = ()
    outputs: tuple[OutputCheck, ...] = ()
    traceback: str | None = None
    error: VerificationError | None = None

    @property
    def failed(self) -> bool:
        """Whether this implementation stops the comparison."""
        return self.check is Check.FAILED

    def failing(self, error: VerificationError, *, cause: BaseException | None = None) -> Finding:
        """Give this finding as a failure; the first error stays."""
        if self.failed:
            return self
        if cause is not None:
            error.__cause__ = cause
        trace = "".join(tracebacks.format_exception(cause)) if cause is not None else None
        return replace(self, check=Check.FAILED, note=str(error), error=error, traceback=trace)

    def noting(self, *notes: str) -> Finding:
        """Give this finding with more to know."""
        return replace(self, notes=(*self.notes, *notes))


@dataclass(frozen=True, slots=True)
class Answer:
    """What the reference gave, or why it gave nothing."""

    value: Any = None
    """It stays allocated, so that freed memory cannot happen to hold the answer."""
    known: bool = False
    asked: bool = True
    """Whether the reference was called, so that what it does to the inputs is known."""
    status: Check = Check.UNVERIFIED
    note: str = ""
    controls: tuple[ControlResult, ...] = ()
    vacuous: str = ""


@dataclass(frozen=True, slots=True)
class Watch:
    """One implementation, and everything that its calls are held against."""

    plan: Plan
    planned: Planned
    implementation: Implementation
    device: Device
    answer: Answer
    shared: InputGuard
    guards: tuple[Guard, ...]

    @classmethod
    def over(
        cls,
        plan: Plan,
        planned: Planned,
        device: Device,
        answer: Answer,
        shared: InputGuard,
        settings: Settings,
    ) -> Watch | None:
        """Set the guards up: those that hold for every way in, and those of this implementation."""
        implementation = planned.implementation
        if not isinstance(implementation, Implementation):
            return None
        owned = (OwnedOutputs(implementation.owned_outputs),) if implementation.owned_outputs else ()
        guards = (settings, *implementation.guards, shared, *owned)
        return cls(plan, planned, implementation, device, answer, shared, guards)

    @property
    def who(self) -> str:
        """What to call it in an error."""
        return f"{self.plan.case.id}: {self.planned.name}"

    def call(self, finding: Finding) -> tuple[Finding, Any]:
        """Make one call whose outputs count; fail the finding if it raises, or does what no call may."""
        outputs, error = None, None
        for guard in self.guards:
            guard.enter()
        try:
            outputs = run_once(self.implementation, self.plan.case.inputs, self.device)
        except Exception as raised:  # noqa: BLE001 - whatever a candidate raises becomes its row
            error = raised
            finding = finding.failing(self._raised(raised), cause=raised)
        try:
            return self.look(finding), outputs
        except KernelmarkError:
            raise
        except Exception:  # an error that stays on the device: its row names what the call raised
            if error is None:
                raise
            return finding, outputs

    def look(self, finding: Finding) -> Finding:
        """Ask every guard what the calls until now did; each puts right what it guards."""
        for guard in self.guards:
            if error := guard.exit(self.who):
                finding = finding.failing(error)
        return finding

    def judge(self, outputs: Any) -> Verdict:
        """Compare outputs with what the call that gave them should have given."""
        expected = self.answer.value
        given = next((values for guard in self.guards if (values := guard.given()) is not None), None)
        reference = self.plan.case.reference
        if given is not None and reference is not None:
            expected = reference(*given)
            self.device.synchronize()
        return check_outputs(outputs, expected, self.plan.case.verification)

    def _raised(self, error: Exception) -> VerificationError:
        if is_out_of_memory(error):
            self.device.release_memory()
            return DeviceMemoryError(f"{self.who} ran out of memory: {first_line(error)}")
        return ImplementationError(f"{self.who} raised {in_short(error)}")


@dataclass(frozen=True, slots=True)
class Findings:
    """What checking found, by name, in the order of the plan; and what the audit while timing needs."""

    plan: Plan
    found: Mapping[str, Finding]
    answer: Answer
    watches: Mapping[str, Watch] = field(default_factory=dict)

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that stop the comparison."""
        return tuple(each for each in self.found.values() if each.failed)

    @property
    def stopped(self) -> str:
        """Why nothing is timed; blank where nothing failed, or what fails is left out."""
        failures = () if self.plan.leave_out else self.failures
        return f"not timed: {', '.join(each.planned.name for each in failures)} failed" if failures else ""

    @property
    def error(self) -> VerificationError | None:
        """The first failure's error, with every failure in its message; ``None`` where nothing stops."""
        errors = [each.error for each in self.failures if each.error is not None]
        if not errors or not self.stopped:
            return None
        raised: VerificationError = type(errors[0])("\n".join(map(str, errors)))
        raised.__cause__ = errors[0].__cause__
        return raised


def check_all(
    plan: Plan, device: Device, *, other_values: bool = True, call_unchecked: bool = True
) -> Findings:
    """Check every implementation of ``plan``; failures are findings, not exceptions.

    Args:
        plan: What to check.
        device: Where it runs.
        other_values: Whether each is called on other values first.
        call_unchecked: Whether each is called where its answer cannot be held against anything.

    Raises:
        UsageError: the case declares a check and has no reference, or one whose answer is none.
        EntryError: the inputs, or the reference's answer, are not those that the case declares.
        VerificationError: the reference itself raised, or wrote to the inputs.
    """
    case = plan.case
    require_reference(case.verification, case.reference)
    case.require_declared_inputs()
    shared = InputGuard(case.inputs)
    answer = _ask_reference(plan, shared, device)
    settings = Settings()
    watches = {
        each.name: watch
        for each in plan.entries
        if (watch := Watch.over(plan, each, device, answer, shared, settings)) is not None
    }
    found: dict[str, Finding] = {}
    for planned in plan.entries:
        if isinstance(planned.implementation, Unavailable):
            found[planned.name] = Finding(planned, Check.UNAVAILABLE, planned.implementation.reason)
        elif planned.is_reference and answer.asked:
            found[planned.name] = _inherit(planned, found[plan.ours.name])
        elif not (call_unchecked or answer.asked):
            found[planned.name] = Finding(planned, answer.status, answer.note)
        else:
            found[planned.name] = _check(watches[planned.name], other_values=other_values)
    return Findings(plan, found, answer, watches)


def audit_outputs(watch: Watch, finding: Finding, outputs: Any, *, when: str) -> Finding:
    """Look again at outputs that a call gave after it had passed its check, and poison them.

    Fails the finding if they are wrong, or if a guard finds something.
    """
    finding = watch.look(finding)
    if finding.failed or not watch.answer.known or not finding.check.comparable:
        return finding
    if finding.planned.is_reference:
        return finding
    verdict = watch.judge(outputs)
    if not verdict.passed:
        name = finding.planned.name
        return finding.failing(
            VerificationError(f"{name} was right when it was checked and wrong {when}: {verdict.message}")
        )
    implementation = watch.implementation
    kept = (watch.plan.case.inputs, implementation.args or (), watch.answer.value)
    poison(apart_from(outputs, kept), 0)
    poison(implementation.owned_outputs, 0)
    return finding


def check_again(watch: Watch, finding: Finding) -> Finding:
    """Call once more after timing, and look at what that gives; fails the finding if it is wrong."""
    finding, outputs = watch.call(finding)
    if finding.failed:
        return finding
    return audit_outputs(watch, finding, outputs, when="when it was called again after timing")


def _ask_reference(plan: Plan, shared: InputGuard, device: Device) -> Answer:
    case, declaration = plan.case, plan.case.verification
    if not declaration.checked:
        return Answer(asked=False, status=declaration.status, note=declaration.note)
    reference = case.reference
    if reference is None:  # refused before; said again for the type
        raise UsageError(f"{case.id} declares a check and has no reference")
    failure: Exception | None = None
    value = None
    try:
        # a copy where the result is a view of the inputs: an implementation that writes them must not
        # be able to write the answer too
        value = detached_copy(reference(*case.inputs), case.inputs)
        device.synchronize()
    except KernelmarkError:
        raise
    except Exception as error:  # noqa: BLE001 - looked at below, after the inputs
        failure = error
        if is_out_of_memory(error):
            device.release_memory()
    if changed := shared.changed():
        shared.restore()
        raise InputsModifiedError(
            f"{case.id}: the reference wrote to the inputs that all implementations share"
            f" ({', '.join(changed)}); let it work on a copy"
        )
    if failure is not None and is_out_of_memory(failure):
        return Answer(note=f"the reference ran out of memory: {first_line(failure)}")
    if failure is not None:
        raise ImplementationError(f"{case.id}: the reference raised {in_short(failure)}") from failure
    require_answer(value, declaration, case.id)
    case.require_declared_outputs(value)
    controls = run_controls(value, case.inputs, declaration)
    return Answer(value, True, True, declaration.status, declaration.note, controls, vacuous(controls))


def _inherit(planned: Planned, ours: Finding) -> Finding:
    """The reference is not checked against itself: it takes the status that our op earned."""
    if ours.failed:
        return Finding(planned, Check.UNVERIFIED, f"the reference; {ours.planned.name} failed its check")
    return Finding(planned, ours.check, ours.note, ("the case's own reference",))


def _check(watch: Watch, *, other_values: bool) -> Finding:
    """Check one implementation, whatever state the one before it left the device in."""
    answer, reason = watch.answer, watch.implementation.noncomparable_reason
    finding = Finding(watch.planned, answer.status, answer.note)
    if reason is not None:
        finding = replace(finding, check=Check.NONCOMPARABLE, note=reason)
    try:
        if other_values and answer.known and reason is None:
            finding = _check_with_other_values(watch, finding)
        else:
            finding, _ = _check_calls(watch, finding)
    except KernelmarkError:
        raise
    except Exception as error:  # noqa: BLE001 - nothing can be looked at any more, and each still has its row
        return finding.failing(
            ImplementationError(f"{watch.who} could not be checked: {in_short(error)}"), cause=error
        )
    if answer.vacuous and finding.check.comparable:
        return replace(finding, check=Check.UNVERIFIED, note=answer.vacuous)
    return finding


def _check_calls(watch: Watch, finding: Finding) -> tuple[Finding, tuple[Any, ...]]:
    """Call on the inputs proper and compare; give the finding, and the fingerprint of the answer."""
    checked, answer = finding, ()
    # two calls, one for each poison, so that no element can keep either by luck
    for _ in range(2 if watch.implementation.owned_outputs else 1):
        called, outputs = watch.call(finding)
        if called.failed:
            return called, ()
        answer = fingerprint(outputs)
        checked = _compare(called, watch.judge(outputs)) if watch.answer.known else called
        if checked.failed:
            return checked, answer
    return checked, answer


def _compare(finding: Finding, verdict: Verdict) -> Finding:
    finding = replace(finding, outputs=verdict.outputs)
    if finding.check is Check.NONCOMPARABLE:
        return finding.noting(f"for information, against the reference: {_summary(verdict)}")
    if verdict.note and verdict.note != finding.note:
        note = f"{finding.note}; {verdict.note}" if finding.note else verdict.note
        finding = replace(finding, note=note)
    if verdict.passed:
        return finding
    name = finding.planned.name
    return finding.failing(VerificationError(f"{name} does not match the reference: {verdict.message}"))


def _check_with_other_values(watch: Watch, finding: Finding) -> Finding:
    """Check after calls on other values at the same addresses, until one of them gives another answer.

    What these calls return need not make sense to the op, and is only told from its answer. They give a wrong
    cache something wrong to remember.
    """
    changes = OtherValues(watch.implementation, watch.plan.case, watch.shared, watch.device)
    checked = None
    for kind in changes.kinds:
        before = changes.call(kind)
        if before is None:
            continue
        checked, answer = _check_calls(watch, finding)
        if checked.failed or before != answer:
            return checked
    if checked is None:
        checked, _ = _check_calls(watch, finding)
    refused = changes.refused[0] if changes.refused else ""
    if checked.failed or not changes.must_tell:
        return checked.noting(refused) if refused else checked
    why = refused or "it gives the same answer when its inputs hold other values"
    return replace(checked, check=Check.UNVERIFIED, note=f"nothing shows that the answer was computed: {why}")


def _summary(verdict: Verdict) -> str:
    if not verdict.outputs:
        return verdict.message
    worst = max(verdict.outputs, key=lambda o: o.error_over_tolerance or 0.0)
    if worst.max_abs_error is None:
        return worst.message or verdict.message
    beyond = f"{worst.mismatched} of {worst.total} beyond {worst.tolerance}"
    return f"{worst.output}: worst error {worst.max_abs_error:.3g}, {beyond}"
