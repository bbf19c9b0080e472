"""Poison in outputs that an implementation owns, so that what was never written is found.

Two rounds with two poisons: an answer may hold the value of one of them by right, and never that of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernelmark.errors import UsageError
from kernelmark.verify.elements import bits, physical, real_dtype
from kernelmark.verify.structure import leaves, storage_key, unreal

__all__ = ["Unwritten", "apart_from", "poison", "untouched", "unwritten"]

# Quiet NaNs whose payload no arithmetic makes by itself; 8-bit formats have one NaN or few.
_NAN_BITS = {
    "float64": 0x7FF8_5A5A_5A5A_5A5A,
    "float32": 0x7FC5_A5A5,
    "float16": 0x7E5A,
    "bfloat16": 0x7FDA,
    "float8_e4m3fn": 0x7F,
    "float8_e4m3fnuz": 0x80,
    "float8_e5m2": 0x7F,
    "float8_e5m2fnuz": 0x80,
}
_PATTERN = 0x5A5A_5A5A_5A5A_5A5A


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Elements of one output that kept both poisons."""

    name: str
    count: int
    total: int
    first_index: tuple[int, ...]

    def __str__(self) -> str:
        place = ", ".join(map(str, self.first_index))
        return (
            f"{self.name}: {self.count} of {self.total} elements were never written, the first at [{place}]"
        )


def poison(outputs: Any, which: int) -> None:
    """Fill every tensor in ``outputs`` with poison number ``which``, through the view that it is.

    Number 0 is a NaN with a payload in floats, 0x5A in every byte of integers, and True; number 1 is a large
    negative number, the complement of those bytes, and False.

    Raises:
        UsageError: ``which`` is neither 0 nor 1, or an output is no plain tensor in memory.
    """
    for _, tensor in _tensors(outputs):
        view = physical(tensor)
        if view.dtype == torch.bool:
            view.fill_(_require_which(which) == 0)
        else:
            bits(view).fill_(_pattern(tensor.dtype, which))


def untouched(outputs: Any, which: int) -> dict[str, torch.Tensor]:
    """Mark the elements that still hold poison number ``which``: a mask for each output that has any.

    Raises:
        UsageError: as for :func:`poison`.
    """
    masks = {}
    for name, tensor in _tensors(outputs):
        view = physical(tensor)
        if view.dtype == torch.bool:
            mask = view == (_require_which(which) == 0)
        else:
            mask = bits(view) == _pattern(tensor.dtype, which)
        mask = mask.all(-1) if tensor.is_complex() else mask
        if bool(mask.any()):
            masks[name] = mask
    return masks


def unwritten(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> tuple[Unwritten, ...]:
    """Find the elements that kept the poison in both rounds: nobody wrote them."""
    found = []
    for name, mask in first.items():
        if name not in second:
            continue
        both = mask & second[name]
        count = int(both.sum())
        if count:
            flat = int(both.reshape(-1).to(torch.uint8).argmax())
            index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat, device="cpu"), both.shape))
            found.append(Unwritten(name, count, both.numel(), index))
    return tuple(found)


def apart_from(outputs: Any, kept: Any) -> tuple[torch.Tensor, ...]:
    """List the plain tensors in ``outputs`` that share no memory with anything in ``kept``.

    These are the ones that may be poisoned without harm to the inputs or to a reference's result.
    """
    held = {storage_key(leaf.value) for leaf in leaves(kept, "kept") if isinstance(leaf.value, torch.Tensor)}
    found = [leaf.value for leaf in leaves(outputs, "outputs") if isinstance(leaf.value, torch.Tensor)]
    return tuple(t for t in found if unreal(t) is None and t.numel() and storage_key(t) not in held)


def _tensors(outputs: Any) -> list[tuple[str, torch.Tensor]]:
    found = []
    for leaf in leaves(outputs, "outputs"):
        if not isinstance(leaf.value, torch.Tensor):
            continue
        reason = unreal(leaf.value)
        if reason is not None:
            raise UsageError(f"{leaf.name} {reason}; it cannot be poisoned")
        if leaf.value.numel():
            found.append((leaf.name, leaf.value))
    return found


def _pattern(dtype: torch.dtype, which: int) -> int:
    """Give the poison as the signed integer of the size of an element, or of a part of a complex one."""
    _require_which(which)
    part = real_dtype(dtype)
    width = 8 * part.itemsize
    if str(part).removeprefix("torch.") in _NAN_BITS:
        if which == 0:
            word = _NAN_BITS[str(part).removeprefix("torch.")]
        else:
            large = torch.tensor(-0.8 * torch.finfo(part).max, dtype=torch.float64, device="cpu").to(part)
            word = int(bits(large))
    else:
        word = _PATTERN if which == 0 else ~_PATTERN
    word &= (1 << width) - 1
    return word - (1 << width) if word >> (width - 1) else word


def _require_which(which: int) -> int:
    if which not in (0, 1):
        raise UsageError(f"there is no poison number {which!r}; the two are 0 and 1")
    return which
