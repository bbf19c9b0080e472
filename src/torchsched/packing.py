"""Memory as compiled code takes it: memref descriptors and the array of pointers to them, filled from tensors.

A tensor goes in by its address, so that every element type works, also those that numpy lacks. What the code takes
on trust (count, sizes, element type, layout, alignment, no overlap) is checked here: wrong memory would be read or
written without a word.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torchsched.failures import Stage, failure
from torchsched.signature import TensorType

if TYPE_CHECKING:
    import torch

__all__ = ["ALIGNMENT", "Slot", "Words", "is_apart", "require_apart", "require_count", "require_fits"]

ALIGNMENT = 64
"""Bytes: one cache line, and the widest vector. torch's allocator gives as much for a tensor of its own."""

_WORD = 8


class Slot:
    """What one position of a call takes: its name for messages, and the tensor that fits it."""

    __slots__ = ("_strided", "_tensor", "dtype", "empty", "name", "shape", "type")

    def __init__(self, name: str, type_: TensorType) -> None:
        import torch

        self.name, self.type = name, type_
        self.shape, self.dtype = type_.shape, type_.element.torch
        self._tensor, self._strided = torch.Tensor, torch.strided
        self.empty: Callable[[], torch.Tensor] = functools.partial(torch.empty, self.shape, dtype=self.dtype)
        """Allocates a tensor that fits."""

    def fits(self, tensor: object) -> bool:
        """Whether the code can take ``tensor`` as it is; sizes and element type included."""
        return (
            isinstance(tensor, self._tensor)
            and tensor.dtype is self.dtype
            and tensor.shape == self.shape
            and tensor.is_cpu
            and tensor.layout is self._strided
            and tensor.is_contiguous()
            and not tensor.is_neg()
            and tensor.data_ptr() % ALIGNMENT == 0
        )


class Words:
    """The memory that one call reads its arguments from: a descriptor for each memref, and pointers to these.

    A descriptor is two pointers (allocated and aligned), an offset, the sizes and the strides. Only the pointers
    change from call to call. All of it lies in one block that must outlive the call.
    """

    __slots__ = ("_block", "_places", "address")

    def __init__(self, types: Sequence[TensorType]) -> None:
        lengths = [3 + 2 * len(type_.shape) for type_ in types]
        pointers = sum(lengths)
        self._block = (ctypes.c_int64 * (pointers + 2 * len(types)))()
        base = ctypes.addressof(self._block)
        self.address = base + _WORD * (pointers + len(types))
        self._places: list[int] = []
        place = 0
        for index, (type_, length) in enumerate(zip(types, lengths, strict=True)):
            self._places.append(place)
            rank = len(type_.shape)
            self._block[place + 3 : place + 3 + rank] = type_.shape
            self._block[place + 3 + rank : place + length] = _strides(type_.shape)
            # the entry's array holds the address of each argument, and an argument is a descriptor's address
            self._block[pointers + index] = base + _WORD * place
            self._block[pointers + len(types) + index] = base + _WORD * (pointers + index)
            place += length

    def point(self, index: int, pointer: int) -> None:
        """Let position ``index`` be the memory at ``pointer``."""
        place = self._places[index]
        self._block[place] = self._block[place + 1] = pointer


def _strides(shape: tuple[int, ...]) -> list[int]:
    strides, step = [0] * len(shape), 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = step
        step *= shape[axis]
    return strides


def require_count(tensors: Sequence[object], slots: Sequence[Slot], what: str) -> None:
    """Refuse another number of tensors than there are slots.

    Raises:
        ModelRunError: there are more or fewer.
    """
    if len(tensors) != len(slots):
        names = ", ".join(f"{slot.name}: {slot.type}" for slot in slots) or "none"
        raise failure(
            Stage.RUN, f"got {len(tensors)} {what}s, and the compiled model has {len(slots)} ({names})"
        )


def require_fits(tensor: object, slot: Slot, what: str) -> None:
    """Refuse a tensor that the code cannot take as it is.

    Raises:
        ModelRunError: it says what is wrong with it, and what to do.
    """
    if not slot.fits(tensor):
        raise failure(Stage.RUN, f"{what} {slot.name!r} {_objection(tensor, slot)}")


def _objection(tensor: object, slot: Slot) -> str:
    import torch

    if not isinstance(tensor, torch.Tensor):
        return f"is a {type(tensor).__name__}; it takes a tensor of {slot.type}"
    if tensor.device.type != "cpu":
        return f"is on {tensor.device}; compiled models run on the CPU"
    if tensor.layout is not torch.strided:
        return f"has layout {tensor.layout}; it takes a strided tensor"
    if tensor.dtype is not slot.dtype:
        return f"has dtype {_name(tensor.dtype)}; it takes {_name(slot.dtype)}"
    if tensor.shape != slot.shape:
        return (
            f"has shape {tuple(tensor.shape)}; it takes {slot.shape}, and sizes are fixed when it is compiled"
        )
    if not tensor.is_contiguous():
        return f"has strides {tensor.stride()}; it takes contiguous memory, as x.contiguous() gives"
    if tensor.is_neg():
        return "is a lazy negative view; it takes plain memory, as x.resolve_neg() gives"
    return (
        f"begins {tensor.data_ptr() % ALIGNMENT} bytes past a multiple of {ALIGNMENT}; it takes aligned memory,"
        " as x.clone() gives"
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def require_apart(
    results: Sequence[tuple[str, torch.Tensor]], arguments: Sequence[tuple[str, torch.Tensor]]
) -> None:
    """Refuse a result that shares memory with an argument or with another result; arguments may share.

    Raises:
        ModelRunError: it names the two.
    """
    spans = [(*_span(tensor), True, name) for name, tensor in results if tensor.numel()]
    spans += [(*_span(tensor), False, name) for name, tensor in arguments if tensor.numel()]
    reached: dict[bool, tuple[int, str]] = {}  # the furthest end so far, of a result and of an argument
    for start, end, is_result, name in sorted(spans):
        for other_is_result, (other_end, other) in reached.items():
            if start < other_end and (is_result or other_is_result):
                first, second = (name, other) if is_result and not other_is_result else (other, name)
                raise failure(
                    Stage.RUN,
                    f"result {first!r} shares memory with {second!r}, and the code writes it in no set order;"
                    " give the result a tensor of its own",
                )
        reached[is_result] = max(reached.get(is_result, (end, name)), (end, name))


def is_apart(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    """Whether a contiguous tensor shares no memory with others."""
    start, end = _span(tensor)
    return all(end <= other_start or other_end <= start for other_start, other_end in map(_span, others))


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    return start, start + tensor.numel() * tensor.element_size()
