"""The elements of tensors: in pieces of bounded size, as bits, as places in memory, and poisoned.

Everything that must look at each element of a large tensor goes through here, so that no check needs a second copy
of it in double precision. Poison, in outputs that an implementation owns, shows what was never written. There are
two: an answer may hold the value of one of them by right, and never that of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.errors import UsageError
from kernelmark.verify.structure import storages, tensors, unreal

__all__ = [
    "MARKS",
    "apart_from",
    "bits",
    "gather",
    "is_packed",
    "mark",
    "physical",
    "piece_size",
    "pieces",
    "place_of",
    "poison",
    "same_bits",
    "scatter",
    "untouched",
    "unwritten",
]

_PIECE = {"cpu": 1 << 16}
_PIECE_ELSEWHERE = 1 << 22
"""Elements looked at at a time, by device type; a comparison holds about ten intermediates of them.
Comparing 16 million halves on two CPU cores took 0.61 s in pieces of 2¹⁶, whose intermediates stay in the
cache, 0.85 s at 2²⁰ and 1.3 s at 2²². A GPU pays some thirty launches for a piece: 512 million halves took an
H200 0.44 s at 2²⁰, 0.11 s and 232 MiB at 2²², 0.08 s and 928 MiB at 2²⁴."""

_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

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
"""Quiet NaNs whose payload no arithmetic makes by itself; 8-bit formats have one NaN or few."""
MARKS = 60
"""As many marks can be told apart in bfloat16, which has six bits below its quiet one."""
_POISON = 36
"""The mark that poison is: 0x5A in each byte of an integer."""


def piece_size(device: torch.device) -> int:
    """Say how many elements to look at at a time on ``device``."""
    return _PIECE.get(device.type, _PIECE_ELSEWHERE)


def pieces(
    *tensors: torch.Tensor, limit: int = 0, offset: int = 0
) -> Iterator[tuple[int, tuple[torch.Tensor, ...]]]:
    """Walk tensors of one shape together, in index order: the offset of a piece, and the piece of each, flat.

    No tensor is copied as a whole, whatever its strides; an expanded one is walked at its expanded size. A piece has
    at most ``limit`` elements, by default :func:`piece_size`; ``offset`` is the first element's.
    """
    limit = limit or piece_size(tensors[0].device)
    count = tensors[0].numel()
    if count <= limit:
        yield offset, tuple(t.reshape(-1) for t in tensors)
        return
    rows = len(tensors[0])
    row = count // rows
    step = max(1, limit // row)
    for start in range(0, rows, step):
        parts = (t[start] if step == 1 else t[start : start + step] for t in tensors)
        yield from pieces(*parts, limit=limit, offset=offset + start * row)


def physical(tensor: torch.Tensor, storage: torch.UntypedStorage | None = None) -> torch.Tensor:
    """Give a view of the same elements without autograd and without a pending conjugation or negation.

    With ``storage`` it is a view of that memory, in the form of ``tensor``.
    """
    memory = tensor.untyped_storage() if storage is None else storage
    view = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return view.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """View elements as integers of their size; complex ones as two, in a last dimension."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.view(_WORDS[tensor.element_size()])


def place_of(index: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Give the index of the element that is number ``index`` of a tensor of ``shape``."""
    # torch's own imports sympy for it, which is half a second of a first comparison
    return tuple(map(int, np.unravel_index(index, tuple(shape))))


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Say whether two tensors of one shape, dtype and device agree in every bit."""
    return all(torch.equal(a, b) for _, (a, b) in pieces(bits(one), bits(other)))


def is_packed(dtype: torch.dtype) -> bool:
    """Say whether an element holds several numbers, so that only its bits can be compared."""
    return dtype == getattr(torch, "float4_e2m1fn_x2", None)


def gather(tensor: torch.Tensor) -> torch.Tensor:
    """Copy the bits of the distinct elements, flat: one that is expanded, or that two windows see, once."""
    words, places = _distinct(tensor)
    if places is not None:
        return words[places]
    words = words.clone(memory_format=torch.contiguous_format)
    return words.reshape(-1, 2) if tensor.is_complex() else words.reshape(-1)


def scatter(tensor: torch.Tensor, words: torch.Tensor) -> None:
    """Write what :func:`gather` gave, or other bits in their place."""
    target, places = _distinct(tensor)
    if places is None:
        target.copy_(words.reshape(target.shape))
    else:
        target[places] = words


def _distinct(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Give a view of the bits that holds each element once.

    Where windows overlap no view can: then the memory as a flat view, and the distinct places in it.
    """
    view = physical(tensor)
    size = [1 if stride == 0 else n for n, stride in zip(view.shape, view.stride(), strict=True)]
    once = view.as_strided(size, view.stride(), view.storage_offset())
    if not _overlaps(once):
        return bits(once), None
    places = torch.zeros(1, dtype=torch.int64, device=view.device)
    for count, stride in zip(view.shape, view.stride(), strict=True):
        steps = torch.arange(count, dtype=torch.int64, device=view.device) * stride
        places = (places[:, None] + steps).reshape(-1)
    places = places.unique()
    reach = int(places[-1]) + 1 if len(places) else 0
    return bits(view.as_strided((reach,), (1,), view.storage_offset())), places


def _overlaps(view: torch.Tensor) -> bool:
    """Say whether two indices may name one place: False only where it is certain that none do."""
    reach = 0
    for stride, size in sorted(zip(view.stride(), view.shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


# --- poison ----------------------------------------------------------------------------------------------


def poison(outputs: Any, which: int) -> None:
    """Fill every tensor in ``outputs`` with poison number ``which``, through the view that it is.

    Number 0 is a NaN with a payload in floats, 0x5A in every byte of integers, and True; number 1 is a large
    negative number, the complement of those bytes, and False.

    Raises:
        UsageError: ``which`` is neither 0 nor 1, or an output is no plain tensor in memory.
    """
    for _, tensor in _poisonable(outputs):
        bits(physical(tensor)).fill_(int(mark(tensor.dtype, which)))


def untouched(outputs: Any, which: int) -> dict[str, torch.Tensor]:
    """Mark the elements that still hold poison number ``which``: a mask for each output that has any.

    Raises:
        UsageError: as for :func:`poison`.
    """
    masks = {}
    for name, tensor in _poisonable(outputs):
        mask = bits(physical(tensor)) == int(mark(tensor.dtype, which))
        mask = mask.all(-1) if tensor.is_complex() else mask
        if bool(mask.any()):
            masks[name] = mask
    return masks


def unwritten(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
    """Name the elements that kept the poison in both rounds, output by output: nobody wrote them."""
    found = []
    for name in (each for each in first if each in second):
        both = first[name] & second[name]
        if count := int(both.sum()):
            first_one = int(both.reshape(-1).to(torch.uint8).argmax())
            place = ", ".join(map(str, place_of(first_one, both.shape)))
            told = f"{count} of {both.numel()} elements were never written, the first at [{place}]"
            found.append(f"{name}: {told}")
    return tuple(found)


def apart_from(outputs: Any, kept: Any) -> tuple[torch.Tensor, ...]:
    """List the plain tensors in ``outputs`` that share no memory with anything in ``kept``.

    These are the ones that may be poisoned without harm to the inputs or to a reference's result.
    """
    held = storages(kept)
    return tuple(each for _, each in tensors(outputs) if (own := storages(each)) and not own & held)


def _poisonable(outputs: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in tensors(outputs, "outputs"):
        if reason := unreal(tensor):
            raise UsageError(f"{name} {reason}; it cannot be poisoned")
        if tensor.numel():
            yield name, tensor


def mark(dtype: torch.dtype, which: int, number: int = _POISON) -> torch.Tensor:
    """Give the word of an element, or of a part of a complex one, that says that nobody wrote there.

    ``which`` is 0 for a NaN with the ``number`` in its payload, a byte of its own throughout, or True, and 1 for a
    large number below zero, the complement of that byte, or False.
    """
    if which not in (0, 1):
        raise UsageError(f"there is no poison number {which!r}; the two are 0 and 1")
    part = dtype.to_real()
    nan = _NAN_BITS.get(str(part).removeprefix("torch."))
    if nan is not None and which == 1:
        large = -(0.5 + number / (2 * MARKS)) * torch.finfo(part).max
        return bits(torch.tensor(large, dtype=torch.float64, device="cpu").to(part))
    if part == torch.bool:
        word = 1 - which
    elif nan is not None:
        word = nan if part.itemsize == 1 else nan & ~0x3F | 1 + number
    else:
        byte = 0x36 + number
        word = int.from_bytes([byte if which == 0 else 0xFF - byte] * part.itemsize)
    sign = 1 << (8 * part.itemsize - 1)
    return torch.tensor((word ^ sign) - sign, dtype=_WORDS[part.itemsize], device="cpu")
