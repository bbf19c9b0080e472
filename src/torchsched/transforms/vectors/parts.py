"""The part of a tensor that one turn of a parallel loop writes: taken out before, put back after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchsched.transforms.vectors.writing import Index, Writer

__all__ = ["Part"]

Value = Any


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a tensor that one thread writes."""

    offsets: list[Index]
    sizes: list[Index]
    element: Any
    flat: bool = False
    """Whether the first dimension, of size 1, is left out of the part."""

    def _split(self, indices: list[Index]) -> tuple[list[int], list[Value]]:
        static = [each if isinstance(each, int) else _DYNAMIC for each in indices]
        return static, [each for each in indices if not isinstance(each, int)]

    def extract(self, writer: Writer, whole: Value) -> Value:
        """Take the part out of the whole."""
        offsets, low = self._split(self.offsets)
        sizes, length = self._split(self.sizes)
        kind = writer.ir.RankedTensorType.get(sizes[1:] if self.flat else sizes, self.element)
        return writer.tensor.extract_slice(kind, whole, low, length, [], offsets, sizes, [1] * len(sizes))

    def insert(self, writer: Writer, part: Value, whole: Value) -> None:
        """Put the part back, beside those of the other threads."""
        offsets, low = self._split(self.offsets)
        sizes, length = self._split(self.sizes)
        writer.tensor.parallel_insert_slice(part, whole, low, length, [], offsets, sizes, [1] * len(sizes))


_DYNAMIC = -(1 << 63)
"""MLIR's mark for a size or an offset that is known when the code runs."""
