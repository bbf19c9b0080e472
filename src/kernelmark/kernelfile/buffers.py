"""How large each buffer of ``solve`` is, and what it holds before the solution sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch

from kernelmark.errors import UsageError
from kernelmark.kernelfile.signature import Signature

__all__ = ["Sizes", "fill", "infer_sizes"]

_NO_DIMENSION = 2**20
_LARGEST = 2**28
_INTEGERS_BELOW = 10


@dataclass(frozen=True, slots=True)
class Sizes:
    """The shape of each buffer, or the tensor it starts as, and how that was decided."""

    by_name: dict[str, Any]
    how: str
    inferred: frozenset[str] = field(default_factory=frozenset)
    """The buffers whose size nobody has told."""

    def __getitem__(self, name: str) -> Any:
        return self.by_name[name]

    def describe(self) -> dict[str, str]:
        """Say each buffer's shape, for the report."""
        return {
            name: "×".join(map(str, value.shape if isinstance(value, torch.Tensor) else value))
            for name, value in self.by_name.items()
        }


def infer_sizes(
    signature: Signature, scalars: Mapping[str, Any], shapes: Mapping[str, Any], ptr_size: int
) -> Sizes:
    """Decide the buffers: from ``shapes`` where it names one, then from ``ptr_size``, then from the integers.

    No integer argument gives 2²⁰ elements, one gives its value, more give the product of the two largest, and
    2²⁸ is the most.

    Raises:
        UsageError: ``shapes`` names what is no buffer, or gives no shape.
    """
    pointers = [each.name for each in signature.pointers]
    unknown = sorted(set(map(str, shapes)) - set(pointers))
    if unknown:
        raise UsageError(
            f"shapes() gives {', '.join(unknown)}, and solve() has the buffers {', '.join(pointers)}"
        )
    told = {name: _shape(shapes[name], name) for name in pointers if name in shapes}
    left = [name for name in pointers if name not in told]
    count, rule = _flat_size(signature, scalars, ptr_size)
    sizes = {name: told.get(name, (count,)) for name in pointers}
    parts = (["shapes() of the reference"] if told else []) + ([rule] if left else [])
    return Sizes(sizes, "; ".join(parts), frozenset(left))


def fill(dtype: str, size: Any, device: str) -> torch.Tensor:
    """Draw one buffer: normal numbers, integers from 0 to 9, or booleans; a tensor is copied."""
    wanted: torch.dtype = getattr(torch, dtype)
    if isinstance(size, torch.Tensor):
        return size.to(device=device, dtype=wanted, copy=True).contiguous()
    if wanted.is_floating_point:
        return torch.randn(size, device=device, dtype=torch.float32).to(wanted)
    high = 2 if wanted == torch.bool else _INTEGERS_BELOW
    return torch.randint(0, high, size, device=device, dtype=torch.int64).to(wanted)


def _flat_size(signature: Signature, scalars: Mapping[str, Any], ptr_size: int) -> tuple[int, str]:
    if ptr_size:
        return ptr_size, f"--ptr-size={ptr_size}"
    named = {each.name: int(scalars[each.name]) for each in signature.scalars if each.type.integral}
    largest = sorted(named, key=lambda name: -named[name])[:2]
    if not largest:
        return _NO_DIMENSION, f"inferred: {_NO_DIMENSION} elements, since solve() has no integer argument"
    size = max(1, min(_LARGEST, prod(max(1, named[name]) for name in largest)))
    factors = " × ".join(f"{name}={named[name]}" for name in largest)
    capped = f", at most {_LARGEST}" if size == _LARGEST else ""
    return size, f"inferred: {size} elements from {factors}{capped}"


def _shape(value: Any, name: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value
    shape = (value,) if isinstance(value, int) else value
    try:
        sizes = tuple(int(each) for each in shape)
    except (TypeError, ValueError):
        raise UsageError(
            f"shapes() gives {name} = {value!r}; give a shape such as (M, N), or a tensor"
        ) from None
    if any(each < 0 for each in sizes):
        raise UsageError(f"shapes() gives {name} = {value!r}; a dimension cannot be negative")
    return sizes
