"""The element types that a compiled model may have: one table of names, bytes, and torch's and MLIR's own words.

Imports torch only inside the functions that translate to or from it, and MLIR never: a type is text here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kernelmark.errors import UsageError
from kernelmark.text import listing, suggestion

if TYPE_CHECKING:
    import torch

__all__ = ["FLOATS", "Element"]


class Element(StrEnum):
    """An element type by its short name, such as ``f32``."""

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U8 = "u8"
    I1 = "i1"

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory; a boolean takes one."""
        return _FACTS[self].bytes

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self in FLOATS

    @property
    def mlir(self) -> str:
        """MLIR's text for it. MLIR's integers have no sign: ``u8`` is ``i8`` there, and the operations tell."""
        return _FACTS[self].mlir

    @property
    def torch(self) -> torch.dtype:
        """Torch's dtype."""
        import torch

        return getattr(torch, _FACTS[self].torch)

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest value of an integer or boolean type.

        Raises:
            TypeError: it is a floating-point type.
        """
        if self.is_float:
            raise TypeError(f"{self} is no integer type")
        if self in (Element.I1, Element.U8):
            return 0, 1 if self is Element.I1 else 255
        half = 1 << (8 * self.bytes - 1)
        return -half, half - 1

    @classmethod
    def parse(cls, text: str) -> Element:
        """Read a name as a user writes it.

        Raises:
            UsageError: it names no element type; the message lists those there are.
        """
        try:
            return cls(text)
        except ValueError:
            hint = suggestion(text, list(cls), there_are="element types")
            raise UsageError(f"{text!r} is no element type; {hint}") from None

    @classmethod
    def from_torch(cls, dtype: torch.dtype) -> Element:
        """Give the element type of torch's ``dtype``.

        Raises:
            UsageError: a compiled model cannot have it.
        """
        name = str(dtype).removeprefix("torch.")
        for element, facts in _FACTS.items():
            if facts.torch == name:
                return element
        known = listing(facts.torch for facts in _FACTS.values())
        raise UsageError(f"dtype {name} cannot be compiled; there are {known}")


FLOATS = (Element.F64, Element.F32, Element.F16, Element.BF16)
"""The floating-point types: those that ``--dtype`` may ask for."""


@dataclass(frozen=True, slots=True)
class _Facts:
    bytes: int
    torch: str
    mlir: str


_FACTS: dict[Element, _Facts] = {
    Element.F64: _Facts(8, "float64", "f64"),
    Element.F32: _Facts(4, "float32", "f32"),
    Element.F16: _Facts(2, "float16", "f16"),
    Element.BF16: _Facts(2, "bfloat16", "bf16"),
    Element.I64: _Facts(8, "int64", "i64"),
    Element.I32: _Facts(4, "int32", "i32"),
    Element.I16: _Facts(2, "int16", "i16"),
    Element.I8: _Facts(1, "int8", "i8"),
    Element.U8: _Facts(1, "uint8", "i8"),
    Element.I1: _Facts(1, "bool", "i1"),
}
