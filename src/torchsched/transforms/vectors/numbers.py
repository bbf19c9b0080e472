"""Which type a value is computed in: f32 for narrower ones, and for doubles that a float model never shows.

torch-mlir computes variances, and compares with infinities, in f64 also for models in f32. Nothing of that is seen
outside, and eager computes it in f32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torchsched.bindings import Operation, bindings

__all__ = ["Numbers", "bits_of", "is_float", "is_scalar", "numbers_of"]

Type = Any

_EXACT = frozenset({"arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui", "arith.bitcast"})
"""Where a double stands for an integer, f32 is not enough."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """How the values of one function are computed."""

    narrow_doubles: bool = False
    """Compute f64 in f32."""

    def computed(self, element: Type) -> Type:
        """Give the type that values of ``element`` are computed in."""
        narrow = ("bf16", "f16", "f64") if self.narrow_doubles else ("bf16", "f16")
        return bindings("ir").F32Type.get(element.context) if str(element) in narrow else element


def numbers_of(function: Operation) -> Numbers:
    """Decide it for a function: doubles are narrowed if none is given, returned, or made from or into an integer."""
    seen = [*function.operation.regions[0].blocks[0].arguments, *_returned(function)]
    if any("f64" in str(value.type) for value in seen):
        return Numbers()
    for operation in _nested(function.operation):
        if operation.name in _EXACT:
            types = [str(each.type) for each in (*operation.operands, *operation.results)]
            if any("f64" in text for text in types):
                return Numbers()
    return Numbers(narrow_doubles=True)


def is_float(element: Type) -> bool:
    """Whether it is one of the floating-point types that models have."""
    return str(element) in ("f64", "f32", "f16", "bf16")


def is_scalar(element: Type) -> bool:
    """Whether it is a number, rather than a tensor, a vector, or a complex number."""
    text = str(element)
    return is_float(element) or text == "index" or (text[0] == "i" and text[1:].isdecimal())


def bits_of(element: Type) -> int:
    """Bits of one value."""
    text = str(element)
    return 64 if text == "index" else 16 if text == "bf16" else int(text[1:])


def _returned(function: Operation) -> Iterator[Any]:
    for operation in function.operation.regions[0].blocks[0].operations:
        if operation.operation.name == "func.return":
            yield from operation.operation.operands


def _nested(operation: Operation) -> Iterator[Operation]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _nested(inner.operation)
