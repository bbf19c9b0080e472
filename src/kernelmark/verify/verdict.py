"""The verdict on one answer: structure, then numbers or the case's own assertion; and on the check itself.

A check that lets zeros pass says nothing about an implementation, so answers that are wrong on purpose are put to it
as well. Each changes one output, and costs one comparison of it and one copy at a time: seven or so for each output,
before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelmark.errors import KernelmarkError, UsageError
from kernelmark.records import Check, ControlResult, OutputCheck
from kernelmark.units import significant
from kernelmark.verify import tolerance
from kernelmark.verify.declarations import Checked, Custom, Declaration, Partial, Rules, require_declaration
from kernelmark.verify.memory import bits, is_packed, pieces
from kernelmark.verify.numerics import Comparison, allowance, as_tensor, compare, measure, scale_of, wide
from kernelmark.verify.other_values import permuted
from kernelmark.verify.structure import Fault, Leaf, Pair, align, describe, leaves, no_output, rebuild

__all__ = ["Verdict", "check_outputs", "require_answer", "run_controls", "vacuous"]

_LISTED = 8
"""Outputs reported in full; an op with hundreds of outputs that are all wrong needs no hundred paragraphs."""

_FAR = 8.0
"""How many times what is allowed, or the size of the output, the one wrong element is off."""

_SEED = 20


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
    """Check an implementation's answer against the reference's, as ``declaration`` says.

    Raises:
        UsageError: the declaration cannot be used: it is none, its tolerances name an output that is not
            there, or its own check returns something instead of raising.
    """
    require_declaration(declaration)
    if not isinstance(declaration, Checked):
        return Verdict(True, declaration.status, note=declaration.note)
    found = align(got, expected, first=declaration.first)
    if found.faults:
        told = _listed([[f"{fault.name} {fault.message}"] for fault in found.faults])
        told += [f"  expected: {describe(expected)}", f"  got:      {describe(got)}"]
        return Verdict(False, Check.FAILED, tuple(map(_structural, found.faults)), message="\n".join(told))
    if isinstance(declaration, Custom):
        complaint = _run_custom(got, expected, declaration)
        check = Check.FAILED if complaint else declaration.status
        return Verdict(not complaint, check, note=declaration.note, message=complaint)
    _require_known_outputs(declaration.tolerance, found.pairs)
    results = [_compared(pair, declaration.tolerance) for pair in found.pairs]
    outputs = tuple(result.check for result in results)
    note = f"not checked: {', '.join(found.beyond)}" if found.beyond else ""
    failed = [_output_report(result) for result in results if not result.check.passed]
    if not failed:
        return Verdict(True, declaration.status, outputs, note)
    first = [f"{len(failed)} of {len(results)} outputs are off"] if len(results) > 1 else []
    return Verdict(False, Check.FAILED, outputs, note, "\n".join(first + _listed(failed)))


def require_answer(expected: Any, declaration: Declaration, who: str) -> None:
    """Refuse a reference's answer that nothing can be compared with.

    Raises:
        UsageError: an output that counts is no tensor and no number.
    """
    if isinstance(declaration, Partial) and isinstance(expected, tuple | list):
        expected = expected[: declaration.first]
    if told := no_output(expected):
        raise UsageError(f"{who}: the reference's {told}, which is no output; let it give tensors")


# --- one output ------------------------------------------------------------------------------------------


def _rule_for(rules: Rules, pair: Pair) -> tolerance.Ruling:
    """Give the rule for one output and who said so: the one that names it, the one for all, or the policy's.

    A rule for all is not applied to integers and booleans: those are exact unless a rule names them.
    """
    declared = "the case's declaration"
    if isinstance(rules, Mapping):
        named = next((rules[key] for key in _keys(pair) if key in rules), None)
        if named is not None:
            return tolerance.Ruling(named, declared)
        rules = None
    if isinstance(pair.expected, int):  # as large as it likes: no dtype holds it
        return tolerance.Ruling(tolerance.EXACT, "by its dtype int")
    if not isinstance(rules, tolerance.Policy):
        rules = tolerance.Policy(
            tolerance.Form.ELEMENTS, file=tolerance.Tolerances(rule=rules, source=declared)
        )
    return rules.for_dtype(as_tensor(pair.expected).dtype)


def _require_known_outputs(rules: Rules, pairs: list[Pair]) -> None:
    known = {key for pair in pairs for key in _keys(pair)}
    unknown = [key for key in rules if key not in known] if isinstance(rules, Mapping) else []
    if unknown:
        raise UsageError(
            f"tolerances are given for {', '.join(map(repr, unknown))}, and the checked outputs are"
            f" {', '.join(pair.name for pair in pairs)}; name an output by position, key or whole name"
        )


def _keys(pair: Pair) -> tuple[Any, ...]:
    return (pair.name, pair.path[0] if pair.path else 0)


def _compared(pair: Pair, rules: Rules) -> Comparison:
    rule, source = _rule_for(rules, pair)
    compared = measure(pair.got, pair.expected, rule, pair.name)
    said = {"tolerance_source": source}
    if not compared.check.passed and not compared.check.message and isinstance(rule, tolerance.Elementwise):
        said["message"] = _long_sums(pair, compared)
    return compared._replace(check=compared.check.model_copy(update=said))


def _long_sums(pair: Pair, compared: Comparison) -> str:
    """Say what to declare where only elements that cancelled are off, as in long sums; blank elsewhere."""
    if compared.stray or compared.allowed == 0:
        return ""
    rule, _ = tolerance.Policy().for_dtype(as_tensor(pair.expected).dtype)
    if not isinstance(rule, tolerance.Normalised) or not compare(pair.got, pair.expected, rule).passed:
        return ""
    return (
        f"against the size of the whole output the error is within {rule.rtol:g}, as rounding in long sums is: if"
        " these are sums, say of how many terms, with Reduction(length)"
    )


def _run_custom(got: Any, expected: Any, declaration: Custom) -> str:
    """Run the case's own assertion; give what it says against the answer, blank where it says nothing."""
    check = f"the case's own check ({declaration.note})"
    try:
        answer = declaration.check(got, expected)
    except AssertionError as error:
        return f"{check} fails: {str(error).strip() or 'AssertionError, without a text'}"
    except KernelmarkError:
        raise
    except Exception as error:  # noqa: BLE001 - a check that breaks has not passed, whatever it broke with
        return f"{check} is broken or cannot cope with this answer: {type(error).__name__}: {error}"
    if answer is not None:  # one that answers False has not failed anything
        told = "it must raise AssertionError where the answer is wrong, and return nothing"
        raise UsageError(f"{check} returned {answer!r}; {told}")
    return ""


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


def _output_report(result: Comparison) -> list[str]:
    check = result.check
    shape = "×".join(map(str, check.shape)) or "one element"
    index = ", ".join(map(str, check.worst_index or ()))
    error = "one of the two is no finite number, and the other is not the same"
    if not result.stray:
        allowed = "none"
        if result.allowed:
            times = significant(result.error / result.allowed, 3)
            allowed = f"{significant(result.allowed)} ({times} times as much)"
        error = f"error {significant(result.error)}, allowed {allowed}"
    return [
        f"{check.output} ({check.dtype}, {shape}): {check.mismatched} of {check.total} elements are off",
        *([f"  {check.message}"] if check.message else []),
        f"  worst at [{index}]: expected {check.expected}, got {check.got}",
        f"  {error}",
        f"  tolerance: {check.tolerance} ({check.tolerance_source})",
    ]


def _listed(reports: list[list[str]]) -> list[str]:
    lines = [line for report in reports[:_LISTED] for line in report]
    return [*lines, f"and {len(reports) - _LISTED} more"] if len(reports) > _LISTED else lines


# --- negative controls -----------------------------------------------------------------------------------


def run_controls(expected: Any, inputs: Any, declaration: Declaration) -> tuple[ControlResult, ...]:
    """Put wrong answers through the check that ``declaration`` asks for; none where it compares nothing.

    Args:
        expected: The reference's answer.
        inputs: The arguments of the call: an input that passes for the answer shows a check of nothing.
        declaration: How the case is checked.

    Raises:
        UsageError: the case's own check returns something instead of raising.
    """
    if not isinstance(declaration, Checked):
        return ()
    found = align(expected, expected, first=declaration.first)
    if found.faults:
        return ()
    results = []
    with torch.no_grad():
        for pair in found.pairs:
            if isinstance(declaration, Custom):
                rule = tolerance.for_dtype(as_tensor(pair.expected).dtype)
            else:
                rule = _rule_for(declaration.tolerance, pair).rule
            for name, make in _wrong_answers(pair, inputs, rule, indices=isinstance(declaration, Custom)):
                results.append(_put_through(name, make, pair, expected, declaration, rule))
    return tuple(results)


def vacuous(results: Sequence[ControlResult]) -> str:
    """Say in a sentence what is wrong with a check that does not catch its controls; blank where it does."""
    passed = [result.control for result in results if result.applied and not result.caught]
    why = f"it also passes {', '.join(passed)}" if passed else ""
    if results and not any(result.applied for result in results):
        why = "no wrong answer could be made from what the reference gives"
    return f"the check is vacuous: {why}" if why else ""


def _put_through(
    name: str,
    make: Callable[[], torch.Tensor],
    pair: Pair,
    expected: Any,
    declaration: Checked,
    rule: tolerance.Tolerance,
) -> ControlResult:
    wrong: Any = make()
    if isinstance(pair.expected, torch.Tensor):
        wrong = wrong if wrong.dtype == pair.expected.dtype else wrong.view(pair.expected.dtype)
    else:
        wrong = type(pair.expected)(wrong.item())
    if compare(wrong, pair.expected, tolerance.EXACT).passed:
        return ControlResult(control=name, applied=False, caught=False)
    if isinstance(declaration, Custom):
        answer = rebuild(expected, lambda leaf: wrong if leaf.path == pair.path else leaf.value)
        caught = bool(_run_custom(answer, expected, declaration))
    else:
        caught = not compare(wrong, pair.expected, rule).passed
    return ControlResult(control=name, applied=True, caught=caught)


def _wrong_answers(
    pair: Pair, inputs: Any, rule: tolerance.Tolerance, *, indices: bool
) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    """Give the controls of one output; integers stay within its range where the check may index with them."""
    expected = as_tensor(pair.expected).detach()
    if is_packed(expected.dtype):
        expected = expected.view(torch.uint8)
    yield f"zeros as {pair.name}", lambda: torch.zeros_like(expected)
    if not expected.numel():
        return
    yield f"the mean everywhere in {pair.name}", lambda: _mean(expected)
    yield f"{pair.name} shuffled", lambda: _shuffled(expected)
    yield f"{pair.name} with its second half zero", lambda: _truncated(expected)
    yield f"{pair.name} with one wrong element", lambda: _one_wrong(expected, rule, indices=indices)
    for leaf in leaves(inputs, "input"):
        if _may_pass_for(leaf, expected, indices=indices):
            yield f"{leaf.name} as {pair.name}", leaf.value.detach().clone


def _may_pass_for(leaf: Leaf, expected: torch.Tensor, *, indices: bool) -> bool:
    value = leaf.value
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return False
    looks = [(each.shape, each.dtype, each.device, each.layout) for each in (value, expected)]
    if looks[0] != looks[1] or not indices or expected.is_floating_point() or expected.is_complex():
        return looks[0] == looks[1]
    (low, high), (least, most) = _range(value), _range(expected)
    return least <= low and high <= most


def _mean(expected: torch.Tensor) -> torch.Tensor:
    """Give the mean of the finite elements everywhere, rounded to the output's dtype."""
    total, count = 0j, 0
    for _, (piece,) in pieces(expected):
        numbers = wide(piece)
        numbers = numbers[numbers.isfinite()]
        total, count = total + complex(numbers.sum().item()), count + numbers.numel()
    mean = total / count if count else 0j
    value = as_tensor(mean if expected.is_complex() else mean.real)
    if not (expected.is_floating_point() or expected.is_complex()):
        value = value.round()
    value = value.to(expected.dtype).to(expected.device)
    return value.expand(expected.shape).clone(memory_format=torch.contiguous_format)


def _shuffled(expected: torch.Tensor) -> torch.Tensor:
    words = bits(_copy(expected))
    flat = words.reshape(-1, 2) if expected.is_complex() else words.reshape(-1)
    mixed = permuted(flat, torch.Generator(device="cpu").manual_seed(_SEED)).reshape(words.shape)
    return mixed.view(expected.dtype).reshape(expected.shape)


def _truncated(expected: torch.Tensor) -> torch.Tensor:
    wrong = _copy(expected)
    bits(wrong.view(-1))[wrong.numel() // 2 :] = 0
    return wrong


def _one_wrong(expected: torch.Tensor, rule: tolerance.Tolerance, *, indices: bool) -> torch.Tensor:
    """Change the middle element alone."""
    wrong, place = _copy(expected), expected.numel() // 2
    element = wrong.view(-1)[place : place + 1]
    allowed = allowance(expected, place, rule)
    if element.dtype == torch.bool:
        element.copy_(~element)
    elif element.is_floating_point() or element.is_complex():
        element.copy_(_far_float(element, expected, allowed))
    else:
        value = _far_integer(int(element), expected, allowed, indices=indices)
        element.copy_(torch.tensor([value], dtype=element.dtype))
    return wrong


def _copy(expected: torch.Tensor) -> torch.Tensor:
    return expected.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()


def _far_float(element: torch.Tensor, expected: torch.Tensor, allowed: float) -> torch.Tensor:
    value = wide(element)
    if not bool(value.isfinite()):
        return torch.zeros_like(element)
    scale = scale_of(expected, tolerance.Normalised(1.0))
    step = _FAR * max(allowed, scale.rms, scale.epsilon * float(value.abs())) or 1.0
    # away from zero it may overflow; towards zero and beyond, clamping leaves it wrong
    value = value + (-step if float(value.real) > 0 else step)
    if not element.is_complex():
        value = value.clamp(torch.finfo(element.dtype).min, torch.finfo(element.dtype).max)
    return value.to(element.dtype)


def _far_integer(value: int, expected: torch.Tensor, allowed: float, *, indices: bool) -> int:
    if indices:
        low, high = _range(expected)
        return high if value - low < high - value else low
    info, step = torch.iinfo(expected.dtype), max(1, int(_FAR * allowed))
    return value + step if value <= info.max - step else max(info.min, value - step)


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """Give the smallest and largest of integers or booleans."""
    found = [piece.to(torch.int64).aminmax() for _, (piece,) in pieces(tensor.detach())]
    return min(int(each.min) for each in found), max(int(each.max) for each in found)
