"""The command line's words for inputs: ``1024x1024xf32xrnd``, ``=3.14``, and ``--init-args``.

Parses text into frozen specifications and draws their values; it knows no model. Parsing needs no torch.

One input is ``SIZExSIZE...[xELEMENT[xVALUES]]``, and inputs are separated by commas. ``VALUES`` says what is in
it: ``rnd`` (the default), ``id``, ``0``, ``1``, or another of :class:`Values`. Because ``0`` and ``1`` are sizes
as well, they may stand only after an element type. Without sizes it is a tensor of no dimension: ``f32xrnd``. An
input that is no tensor is a Python literal after an equals sign: ``=3.14``, ``=True``, ``=None``.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kernelmark.errors import UsageError
from kernelmark.text import suggestion
from torchsched.elements import Element
from torchsched.signature import TensorType

if TYPE_CHECKING:
    import torch

__all__ = [
    "InputSpec",
    "Literal",
    "Values",
    "parse_init_args",
    "parse_input_shapes",
]

LARGEST_RANK = 16
DEFAULT_INTEGERS = 2
"""``rnd`` draws integers below this unless it says otherwise (``rnd1000``): 0 and 1 are in range as an index of
whatever has two rows or more, and an index out of range is not caught by compiled code."""


class Values(StrEnum):
    """What an input is filled with."""

    RANDOM = "rnd"
    """Floats uniform in [-1, 1): signed, so that relu and abs are not the identity. Integers from 0 up to the
    bound that follows (``rnd10``), or 0 and 1. Booleans of both kinds."""
    IDENTITY = "id"
    """Ones where the last two indices are equal, zeros elsewhere."""
    ZEROS = "0"
    ONES = "1"
    SYMMETRIC = "sym"
    """``rnd``, made equal to its own transpose."""
    UPPER = "triu"
    """``rnd`` on and above the diagonal, zeros below."""
    LOWER = "tril"
    """``rnd`` on and below the diagonal, zeros above."""
    PROBABILITIES = "prob"
    """Positive, adding up to one along the last dimension."""
    SIGNS = "sign"
    """-1 or 1."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One tensor: sizes, element type (None: that of the model's inputs), values."""

    shape: tuple[int, ...]
    element: Element | None = None
    values: Values = Values.RANDOM
    bound: int | None = None
    """Integers are drawn below it."""

    def __post_init__(self) -> None:
        if len(self.shape) > LARGEST_RANK:
            raise UsageError(f"{self}: {len(self.shape)} sizes; at most {LARGEST_RANK} can be compiled")
        self._require_rank()
        if self.element is None and (self.values not in _NAMED or not self.shape):
            raise UsageError(f"{self}: {_NEEDS_ELEMENT}")
        if self.bound is None:
            return
        if self.element is None or self.element.is_float or self.element is Element.I1:
            raise UsageError(f"{self}: a bound belongs to an integer type, as in 32xi64xrnd10")
        if not 1 <= self.bound <= self.element.range[1] + 1:
            raise UsageError(f"{self}: the bound must be from 1 to {self.element.range[1] + 1}")

    def _require_rank(self) -> None:
        needed = 2 if self.values in _OF_MATRICES else 1 if self.values is Values.PROBABILITIES else 0
        if len(self.shape) < needed:
            words = "two sizes or more" if needed == 2 else "a size"
            raise UsageError(f"{self}: {self.values} needs {words}, and there is {len(self.shape)}")
        if self.values is Values.SYMMETRIC and self.shape[-1] != self.shape[-2]:
            raise UsageError(f"{self}: sym needs its last two sizes to be equal")
        if self.values is Values.PROBABILITIES and self.element is not None and not self.element.is_float:
            raise UsageError(f"{self}: prob needs a floating-point type")
        if self.values is Values.SIGNS and self.element in (Element.U8, Element.I1):
            raise UsageError(f"{self}: sign needs a type that holds -1")

    def __str__(self) -> str:
        values = f"{self.values}{'' if self.bound is None else self.bound}"
        element = [] if self.element is None else [str(self.element)]
        return "x".join([*map(str, self.shape), *element, values])

    def draw(self, generator: torch.Generator, *, element: Element = Element.F32) -> torch.Tensor:
        """Make the tensor; ``element`` is for a specification that names none."""
        import torch

        element = self.element or element
        dtype = element.torch
        match self.values:
            case Values.ZEROS:
                return torch.zeros(self.shape, dtype=dtype)
            case Values.ONES:
                return torch.ones(self.shape, dtype=dtype)
            case Values.IDENTITY:
                eye = torch.eye(*self.shape[-2:], dtype=dtype)
                return eye.expand(self.shape).contiguous()
            case Values.PROBABILITIES:
                return self._random(element, None, generator).softmax(dim=-1)
            case Values.SIGNS:
                return torch.randint(0, 2, self.shape, generator=generator).mul_(2).sub_(1).to(dtype)
        drawn = self._random(element, self.bound, generator)
        match self.values:
            case Values.SYMMETRIC:
                return torch.maximum(drawn, drawn.mT)  # exact in every type, as a mean is not
            case Values.UPPER:
                return drawn.triu_()
            case Values.LOWER:
                return drawn.tril_()
        return drawn

    def _random(self, element: Element, bound: int | None, generator: torch.Generator) -> torch.Tensor:
        import torch

        dtype = element.torch
        if element.is_float:
            # In the type itself: a copy in f32 beside it would double the memory of the largest inputs.
            return torch.empty(self.shape, dtype=dtype).uniform_(-1, 1, generator=generator)
        return torch.randint(0, bound or DEFAULT_INTEGERS, self.shape, dtype=dtype, generator=generator)

    def type(self, element: Element = Element.F32) -> TensorType:
        """Give the tensor type; ``element`` is for a specification that names none."""
        return TensorType(self.shape, self.element or element)


@dataclass(frozen=True, slots=True)
class Literal:
    """An input that is no tensor, as it stands."""

    value: Any

    def __str__(self) -> str:
        return f"={self.value!r}"


_OF_MATRICES = (Values.IDENTITY, Values.SYMMETRIC, Values.UPPER, Values.LOWER)
_NAMED = tuple(values for values in Values if values not in (Values.ZEROS, Values.ONES))
"""Values whose word cannot be taken for a size."""
_NEEDS_ELEMENT = "name the element type (4xf32x0): without it, 0 and 1 are sizes, and no size is nothing"
_SIZE = re.compile(r"[0-9]{1,15}")
_RANDOM_BELOW = re.compile(r"rnd(\d{1,19})")


def parse_input_shapes(text: str) -> tuple[InputSpec | Literal, ...]:
    """Read ``--input-shapes``; spaces count for nothing outside a literal. No text is no inputs.

    Raises:
        UsageError: one of them is malformed; the message shows it.
    """
    return tuple(_parse_one(part, text) for part in _split(text, "--input-shapes")) if text.strip() else ()


def parse_init_args(text: str | None) -> tuple[Any, ...] | None:
    """Read ``--init-args``: None (the file's own), ``[]`` (no arguments), or literals such as ``[64, (3, 3)]``.

    Raises:
        UsageError: it is no list of Python literals.
    """
    if text is None or text.strip() in ("", "None"):
        return None
    value = _literal(text, "--init-args")
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _parse_one(text: str, whole: str) -> InputSpec | Literal:
    text = text.strip()
    if text.startswith("="):
        return Literal(_literal(text[1:], f"input {text}"))
    # No element type and no word for values holds an x.
    words = [word.strip() for word in text.split("x")]
    shape: list[int] = []
    while words and _SIZE.fullmatch(words[0]):
        shape.append(int(words.pop(0)))
    element: Element | None = None
    if words and words[0] not in _NAMED and not _RANDOM_BELOW.fullmatch(words[0]):
        element = _element(words.pop(0), text, whole)
    values, bound = _values(words, text, element) if words else (Values.RANDOM, None)
    return InputSpec(tuple(shape), element, values, bound)


def _values(words: list[str], text: str, element: Element | None) -> tuple[Values, int | None]:
    word, *rest = words
    if rest:
        raise UsageError(f"input {text!r}: {'x'.join(rest)!r} stands after the values; {_FORM}")
    if below := _RANDOM_BELOW.fullmatch(word):
        return Values.RANDOM, int(below[1])
    if word not in list(Values):
        hint = suggestion(word, list(Values), there_are="values")
        raise UsageError(f"input {text!r}: {word!r} says no values; {hint}")
    return Values(word), None


def _element(word: str, text: str, whole: str) -> Element:
    if not word:
        raise UsageError(f"input {text!r} of {whole!r} has an empty part; {_FORM}")
    try:
        return Element.parse(word)
    except UsageError as error:
        raise UsageError(f"input {text!r}: {error}") from None


_FORM = "write SIZExSIZExELEMENTxVALUES, as in 1024x1024xf32xrnd, or =LITERAL"


def _split(text: str, option: str) -> list[str]:
    """Split at the commas that stand in no bracket and in no quotes."""
    parts, start, depth, quote = [], 0, 0, ""
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    if quote or depth:
        raise UsageError(f"{option} {text}: a bracket or a quotation mark is left open")
    parts.append(text[start:])
    return parts


def _literal(text: str, what: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
        raise UsageError(
            f"{what}: {text.strip()!r} is no Python literal ({error}); write numbers, text in quotes, True, False,"
            " None, and lists or tuples of them"
        ) from None
