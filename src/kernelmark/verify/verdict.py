"""The verdict on one answer: structure, then numbers or the case's own assertion, and a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelmark.errors import KernelmarkError, UsageError
from kernelmark.records import Check, OutputCheck
from kernelmark.units import significant
from kernelmark.verify.declarations import (
    Custom,
    Declaration,
    Exact,
    Partial,
    Rules,
    require_declaration,
)
from kernelmark.verify.numerics import Comparison, as_tensor, measure
from kernelmark.verify.policies import Form, Policy, Ruling, Tolerances
from kernelmark.verify.structure import Alignment, Fault, Pair, align, describe, no_output
from kernelmark.verify.tolerance import EXACT, Elementwise, Normalised

__all__ = ["Verdict", "check_outputs", "require_answer", "rule_for", "run_custom"]

_LISTED = 8
"""Outputs reported in full; an op with hundreds of outputs that are all wrong needs no hundred paragraphs."""

_DECLARED = "the case's declaration"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the check of one answer found.

    ``passed`` means that nothing was found wrong; ``check`` says how much that is worth. Under a declaration
    that compares nothing it is always True, and ``check`` is not comparable.
    """

    passed: bool
    check: Check
    outputs: tuple[OutputCheck, ...] = ()
    note: str = ""
    """What was not checked, or how it was, or why nothing was."""
    message: str = ""
    """The report of a failure; blank where nothing is wrong."""


def check_outputs(got: Any, expected: Any, declaration: Declaration) -> Verdict:
    """Check an answer against the reference's, as ``declaration`` says.

    Args:
        got: What an implementation returned.
        expected: What the reference returned.
        declaration: How the case is checked.

    Raises:
        UsageError: the declaration cannot be used: it is none, its tolerances name an output that is not
            there, or its own check returns something instead of raising.
    """
    require_declaration(declaration)
    if not isinstance(declaration, Exact | Partial | Custom):
        return Verdict(True, declaration.status, note=declaration.note)
    first = declaration.first if isinstance(declaration, Partial) else None
    found = align(got, expected, first=first)
    if found.faults:
        outputs = tuple(_structural(fault) for fault in found.faults)
        return Verdict(False, Check.FAILED, outputs, message=_structure_report(found, got, expected))
    if isinstance(declaration, Custom):
        return _custom_verdict(got, expected, declaration)
    return _numeric_verdict(found, declaration)


def require_answer(expected: Any, declaration: Declaration, who: str) -> None:
    """Refuse a reference's answer that nothing can be compared with.

    Raises:
        UsageError: an output that counts is no tensor and no number.
    """
    if isinstance(declaration, Partial) and isinstance(expected, tuple | list):
        expected = expected[: declaration.first]
    if told := no_output(expected):
        raise UsageError(f"{who}: the reference's {told}, which is no output; let it give tensors")


def rule_for(rules: Rules, pair: Pair) -> Ruling:
    """Give the rule for one output and who said so: the one that names it, the one for all, or the policy's.

    A rule for all is not applied to integers and booleans: those are exact unless a rule names them.
    """
    if isinstance(rules, Mapping):
        named = next((rules[key] for key in _keys(pair) if key in rules), None)
        if named is not None:
            return Ruling(named, _DECLARED)
        rules = None
    if isinstance(pair.expected, int):  # as large as it likes: no dtype holds it
        return Ruling(EXACT, "by its dtype int")
    if isinstance(rules, Policy):
        deciding = rules
    else:
        said = rules if isinstance(rules, Tolerances) else Tolerances(rule=rules, source=_DECLARED)
        deciding = Policy(Form.ELEMENTS, file=said)
    return deciding.for_dtype(as_tensor(pair.expected).dtype)


def run_custom(got: Any, expected: Any, declaration: Custom) -> str | None:
    """Run the case's own assertion; give what it says against the answer, or ``None`` where it says nothing.

    Raises:
        UsageError: it returned something: a check that answers False has not failed anything.
    """
    try:
        answer = declaration.check(got, expected)
    except AssertionError as error:
        text = str(error).strip() or "AssertionError, without a text"
        return f"the case's own check ({declaration.note}) fails: {text}"
    except KernelmarkError:
        raise
    except Exception as error:  # noqa: BLE001 - a check that breaks has not passed, whatever it broke with
        return (
            f"the case's own check ({declaration.note}) is broken or cannot cope with this answer:"
            f" {type(error).__name__}: {error}"
        )
    if answer is not None:
        raise UsageError(
            f"the case's own check ({declaration.note}) returned {answer!r}; it must raise AssertionError"
            " where the answer is wrong, and return nothing"
        )
    return None


def _custom_verdict(got: Any, expected: Any, declaration: Custom) -> Verdict:
    complaint = run_custom(got, expected, declaration)
    if complaint is None:
        return Verdict(True, declaration.status, note=declaration.note)
    return Verdict(False, Check.FAILED, note=declaration.note, message=complaint)


def _numeric_verdict(found: Alignment, declaration: Exact | Partial) -> Verdict:
    _require_known_outputs(declaration.tolerance, found.pairs)
    results = []
    for pair in found.pairs:
        rule, source = rule_for(declaration.tolerance, pair)
        compared = measure(pair.got, pair.expected, rule, pair.name)
        check = compared.check.model_copy(update={"tolerance_source": source})
        if not check.passed and not check.message and isinstance(rule, Elementwise):
            check = check.model_copy(update={"message": _long_sums(pair, compared)})
        results.append(replace(compared, check=check))
    outputs = tuple(result.check for result in results)
    note = f"not checked: {', '.join(found.beyond)}" if found.beyond else ""
    failed = [result for result in results if not result.check.passed]
    if not failed:
        return Verdict(True, declaration.status, outputs, note)
    return Verdict(False, Check.FAILED, outputs, note, _numeric_report(failed, len(results)))


def _long_sums(pair: Pair, compared: Comparison) -> str:
    """Say what to declare where only elements that cancelled are off, as in long sums; blank elsewhere."""
    if compared.stray or compared.allowed == 0:
        return ""
    rule, _ = Policy().for_dtype(as_tensor(pair.expected).dtype)
    if not isinstance(rule, Normalised) or not measure(pair.got, pair.expected, rule).check.passed:
        return ""
    return (
        f"against the size of the whole output the error is within {rule.rtol:g}, as rounding in long sums is: if"
        " these are sums, say of how many terms, with Reduction(length)"
    )


# --- which rule ------------------------------------------------------------------------------------------


def _require_known_outputs(tolerances: Rules, pairs: list[Pair]) -> None:
    if not isinstance(tolerances, Mapping):
        return
    known = {key for pair in pairs for key in _keys(pair)}
    unknown = [key for key in tolerances if key not in known]
    if unknown:
        raise UsageError(
            f"tolerances are given for {', '.join(map(repr, unknown))}, and the checked outputs are"
            f" {', '.join(pair.name for pair in pairs)}; name an output by position, key or whole name"
        )


def _keys(pair: Pair) -> tuple[Any, ...]:
    return (pair.name, pair.path[0] if pair.path else 0)


# --- words -----------------------------------------------------------------------------------------------


def _structural(fault: Fault) -> OutputCheck:
    tensor = fault.expected if isinstance(fault.expected, torch.Tensor) else None
    total = 0 if tensor is None else tensor.numel()
    return OutputCheck(
        output=fault.name,
        dtype="" if tensor is None else str(tensor.dtype).removeprefix("torch."),
        shape=() if tensor is None else tuple(tensor.shape),
        tolerance="structure",
        passed=False,
        total=total,
        mismatched=total,
        message=fault.message,
    )


def _structure_report(found: Alignment, got: Any, expected: Any) -> str:
    lines = [f"{fault.name} {fault.message}" for fault in found.faults[:_LISTED]]
    lines += _and_more(len(found.faults))
    return "\n".join([*lines, f"  expected: {describe(expected)}", f"  got:      {describe(got)}"])


def _numeric_report(failed: list[Comparison], total: int) -> str:
    lines = [f"{len(failed)} of {total} outputs are off"] if total > 1 else []
    for result in failed[:_LISTED]:
        lines += _output_report(result)
    return "\n".join(lines + _and_more(len(failed)))


def _output_report(result: Comparison) -> list[str]:
    check = result.check
    shape = "×".join(map(str, check.shape)) or "one element"
    lines = [f"{check.output} ({check.dtype}, {shape}): {check.mismatched} of {check.total} elements are off"]
    if check.message:
        lines.append(f"  {check.message}")
    index = ", ".join(map(str, check.worst_index or ()))
    lines.append(f"  worst at [{index}]: expected {check.expected}, got {check.got}")
    if result.stray:
        lines.append("  one of the two is no finite number, and the other is not the same")
    else:
        lines.append(f"  error {significant(result.error)}, allowed {_allowed(result)}")
    lines.append(f"  tolerance: {check.tolerance} ({check.tolerance_source})")
    return lines


def _allowed(result: Comparison) -> str:
    if result.allowed == 0:
        return "none"
    return f"{significant(result.allowed)} ({significant(result.error / result.allowed, 3)} times as much)"


def _and_more(count: int) -> list[str]:
    return [f"and {count - _LISTED} more"] if count > _LISTED else []
