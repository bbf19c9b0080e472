"""Negative controls: answers that are wrong on purpose, and whether this case's own check catches each.

A check that lets zeros pass says nothing about an implementation. Each control changes one output and costs
one comparison of it and one copy at a time: seven or so for each output, before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelmark.records import ControlResult
from kernelmark.verify.declarations import Custom, Declaration, Exact, Partial
from kernelmark.verify.elements import bits, is_packed, pieces, real_dtype
from kernelmark.verify.numerics import allowance, as_tensor, compare, scale_of
from kernelmark.verify.stale import permuted
from kernelmark.verify.structure import Leaf, Pair, align, leaves, rebuild
from kernelmark.verify.tolerance import EXACT, Normalised, Tolerance, for_dtype
from kernelmark.verify.verdict import rule_for, run_custom

__all__ = ["run_controls", "vacuous"]

_FAR = 8.0
"""How many times what is allowed, or the size of the output, the one wrong element is off."""

_SEED = 20


def run_controls(expected: Any, inputs: Any, declaration: Declaration) -> tuple[ControlResult, ...]:
    """Put wrong answers through the check that ``declaration`` asks for.

    Args:
        expected: The reference's answer.
        inputs: The arguments of the call: an input that passes for the answer shows a check of nothing.
        declaration: How the case is checked; nothing is run for one that compares nothing.

    Raises:
        UsageError: the case's own check returns something instead of raising.
    """
    if not isinstance(declaration, Exact | Partial | Custom):
        return ()
    first = declaration.first if isinstance(declaration, Partial) else None
    found = align(expected, expected, first=first)
    if found.faults:
        return ()
    results = []
    with torch.no_grad():
        for pair in found.pairs:
            rule = for_dtype(as_tensor(pair.expected).dtype)
            if not isinstance(declaration, Custom):
                rule = rule_for(declaration.tolerance, pair).rule
            for name, wrong in _wrong_answers(pair, inputs, rule, indices=isinstance(declaration, Custom)):
                results.append(_put_through(name, wrong, pair, expected, declaration, rule))
    return tuple(results)


def vacuous(results: Sequence[ControlResult]) -> str:
    """Say in a sentence what is wrong with a check that does not catch its controls; blank where it does."""
    passed = [result.control for result in results if result.applied and not result.caught]
    if passed:
        return f"the check is vacuous: it also passes {', '.join(passed)}"
    if results and not any(result.applied for result in results):
        return "the check is vacuous: no wrong answer could be made from what the reference gives"
    return ""


@dataclass(frozen=True, slots=True)
class _Made:
    """Makes controls of one output; a new tensor each time."""

    expected: torch.Tensor
    rule: Tolerance
    indices: bool
    """Whether integers stay within the range that the output has, since the check may index with them."""

    def zeros(self) -> torch.Tensor:
        return torch.zeros_like(self.expected)

    def mean(self) -> torch.Tensor:
        """Give the mean of the finite elements everywhere, rounded to the output's dtype."""
        total, count = 0j, 0
        for _, (piece,) in pieces(self.expected):
            wide = _wide(piece)
            wide = wide[wide.isfinite()]
            total, count = total + complex(wide.sum().item()), count + wide.numel()
        mean = total / count if count else 0j
        value = as_tensor(mean if self.expected.is_complex() else mean.real)
        if not (self.expected.is_floating_point() or self.expected.is_complex()):
            value = value.round()
        value = value.to(self.expected.dtype).to(self.expected.device)
        return value.expand(self.expected.shape).clone(memory_format=torch.contiguous_format)

    def shuffled(self) -> torch.Tensor:
        words = bits(self._copy())
        flat = words.reshape(-1, 2) if self.expected.is_complex() else words.reshape(-1)
        mixed = permuted(flat, torch.Generator(device="cpu").manual_seed(_SEED))
        return _unbits(mixed.reshape(words.shape), self.expected.dtype)

    def truncated(self) -> torch.Tensor:
        wrong = self._copy()
        bits(wrong.view(-1))[wrong.numel() // 2 :] = 0
        return wrong

    def one_wrong(self) -> torch.Tensor:
        """Change the middle element alone."""
        wrong = self._copy()
        place = wrong.numel() // 2
        wrong.view(-1)[place : place + 1] = self._far_from(wrong.view(-1)[place : place + 1], place)
        return wrong

    def _copy(self) -> torch.Tensor:
        return self.expected.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()

    def _far_from(self, element: torch.Tensor, place: int) -> torch.Tensor:
        dtype = element.dtype
        if dtype == torch.bool:
            return ~element
        if dtype.is_floating_point or dtype.is_complex:
            return self._far_float(element, place)
        if self.indices:
            low, high = _range(self.expected)
            value = high if int(element) - low < high - int(element) else low
        else:
            info = torch.iinfo(dtype)
            step = max(1, int(_FAR * allowance(self.expected, place, self.rule)))
            value = (
                int(element) + step if int(element) <= info.max - step else max(info.min, int(element) - step)
            )
        return torch.tensor([value], dtype=dtype, device=element.device)

    def _far_float(self, element: torch.Tensor, place: int) -> torch.Tensor:
        wide = _wide(element)
        if not bool(wide.isfinite()):
            return torch.zeros_like(element)
        scale = scale_of(self.expected, Normalised(1.0))
        spacing = scale.epsilon * float(wide.abs())
        step = _FAR * max(allowance(self.expected, place, self.rule), scale.rms, spacing) or 1.0
        info = torch.finfo(element.dtype)
        # away from zero it may overflow; towards zero and beyond, clamping leaves it wrong
        towards = -step if float(wide.real) > 0 else step
        if element.is_complex():
            return (wide + towards).to(element.dtype)
        return (wide + towards).clamp(info.min, info.max).to(element.dtype)


def _wrong_answers(
    pair: Pair, inputs: Any, rule: Tolerance, *, indices: bool
) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    expected = as_tensor(pair.expected).detach()
    if is_packed(expected.dtype):
        expected = expected.view(torch.uint8)
    made = _Made(expected, rule, indices)
    yield f"zeros as {pair.name}", made.zeros
    if not expected.numel():
        return
    yield f"the mean everywhere in {pair.name}", made.mean
    yield f"{pair.name} shuffled", made.shuffled
    yield f"{pair.name} with its second half zero", made.truncated
    yield f"{pair.name} with one wrong element", made.one_wrong
    for leaf in leaves(inputs, "input"):
        if _may_pass_for(leaf, expected, indices=indices):
            yield f"{leaf.name} as {pair.name}", leaf.value.detach().clone


def _put_through(
    name: str,
    make: Callable[[], torch.Tensor],
    pair: Pair,
    expected: Any,
    declaration: Exact | Partial | Custom,
    rule: Tolerance,
) -> ControlResult:
    wrong: Any = make()
    if isinstance(pair.expected, torch.Tensor):
        wrong = wrong if wrong.dtype == pair.expected.dtype else wrong.view(pair.expected.dtype)
    else:
        wrong = type(pair.expected)(wrong.item())
    if compare(wrong, pair.expected, EXACT).passed:
        return ControlResult(control=name, applied=False, caught=False)
    if isinstance(declaration, Custom):
        answer = rebuild(expected, lambda leaf: wrong if leaf.path == pair.path else leaf.value)
        caught = run_custom(answer, expected, declaration) is not None
    else:
        caught = not compare(wrong, pair.expected, rule).passed
    return ControlResult(control=name, applied=True, caught=caught)


def _may_pass_for(leaf: Leaf, expected: torch.Tensor, *, indices: bool) -> bool:
    value = leaf.value
    alike = (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.shape == expected.shape
        and value.dtype == expected.dtype
        and value.device == expected.device
        and value.layout == expected.layout
    )
    if not alike or not indices or expected.is_floating_point() or expected.is_complex():
        return alike
    (low, high), (least, most) = _range(value), _range(expected)
    return least <= low and high <= most


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """Give the smallest and largest of integers or booleans."""
    low, high = [], []
    for _, (piece,) in pieces(tensor.detach()):
        wide = piece.to(torch.int64)
        low.append(int(wide.min()))
        high.append(int(wide.max()))
    return min(low), max(high)


def _wide(piece: torch.Tensor) -> torch.Tensor:
    """Give a piece in double precision, on the CPU where its device has none."""
    if piece.device.type not in ("cpu", "cuda"):
        piece = piece.cpu()
    return piece.to(torch.complex128 if piece.is_complex() else torch.float64)


def _unbits(words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_complex:
        return torch.view_as_complex(words.view(real_dtype(dtype)))
    return words.view(dtype)
