"""What every call whose outputs are looked at is held against, whatever the way in, and the snapshot of its inputs.

The engine sets up the guards that all implementations have, adds those that an implementation brings, and runs them
as one tuple.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from kernelmark.errors import InputsModifiedError, OutOfBoundsError, UsageError, VerificationError
from kernelmark.verify.memory import MARKS, mark, physical, poison, same_bits, untouched, unwritten
from kernelmark.verify.structure import attributes, held_tensors, unreal

__all__ = ["Canaries", "Guard", "InputGuard", "OwnedOutputs", "Renewed", "differing"]


class Guard:
    """Entered before a call and left after it; each of its hooks may be left as it is."""

    error: ClassVar[type[VerificationError]] = VerificationError
    """What the row fails with."""
    renews: ClassVar[bool] = False
    """Whether each call gets other values, which :meth:`given` tells."""

    def enter(self) -> None:
        """Get ready for a call."""

    def breach(self) -> str:
        """Say what calls did that none may do, as what follows their name, and put it right; blank for nothing."""
        return ""

    def exit(self, who: str) -> VerificationError | None:
        """Say what ``who`` did that no call may do, and put it right; also where a timed call is looked at.

        It is not entered before timed calls.
        """
        breach = self.breach()
        return self.error(f"{who} {breach}") if breach else None

    def given(self) -> tuple[Any, ...] | None:
        """Give what the last call was called with, where that is other values for each call."""
        return None


@dataclass(slots=True)
class OwnedOutputs(Guard):
    """What an implementation writes its answer into is poisoned before each call, with two poisons in turn."""

    tensors: tuple[Any, ...]
    _which: int = 0
    _entered: bool = False
    _before: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def enter(self) -> None:
        """Poison them."""
        poison(self.tensors, self._which)
        self._entered = True

    def breach(self) -> str:
        """Name the elements that kept the poisons of two calls: nobody wrote them."""
        if not self._entered:
            return ""
        now = untouched(self.tensors, self._which)
        kept = unwritten(self._before, now)
        self._before, self._which, self._entered = now, 1 - self._which, False
        return f"left part of its own output unwritten: {kept[0]}" if kept else ""


@dataclass(slots=True)
class Renewed(Guard):
    """Arguments into which ``reset`` puts other values before each call.

    Args:
        arguments: What calls get.
        drawn: Gives the values that the last ``reset`` put there; outputs are compared with the answer to those.
    """

    arguments: tuple[Any, ...]
    drawn: Callable[[], tuple[Any, ...]]

    error = InputsModifiedError
    renews = True

    def given(self) -> tuple[Any, ...]:
        """Give the values that the last call got."""
        return self.drawn()

    def breach(self) -> str:
        """Name the arguments that are not what was drawn."""
        written = ", ".join(differing(self.arguments, self.drawn()))
        return f"wrote to its inputs ({written}); it must leave them as they were" if written else ""


# --- inputs ----------------------------------------------------------------------------------------------


class InputGuard(Guard):
    """The inputs that implementations share are what they were, bit by bit: a snapshot, made when it is built.

    Whole memory blocks are kept, not tensors, so that aliases, views and expanded tensors come back bit for bit,
    with the bytes that no view shows. The price is one copy of every block, on its own device.

    Args:
        tensors: The arguments of a call; containers and objects in it are followed, arrays of numpy's are guarded as
            tensors are, and numbers and text are left alone.

    Raises:
        UsageError: a tensor that has no plain memory: sparse, quantised, nested, or of a subclass; or something
            else that holds values.
    """

    error = InputsModifiedError

    def __init__(self, tensors: Any) -> None:
        self._blocks: dict[tuple[str, int, int], _Block] = {}
        self._held = []
        for name, tensor in held_tensors(tensors, "inputs"):
            if reason := unreal(tensor):
                raise UsageError(f"{name} {reason}; inputs of this kind cannot be kept and restored")
            storage = tensor.untyped_storage()
            key = (str(tensor.device), storage.data_ptr(), storage.nbytes())
            if key not in self._blocks:
                self._blocks[key] = _Block(storage, tensor.device)
            self._held.append(_Held(name, tensor, self._blocks[key]))
        self._containers = list(_containers(tensors, "inputs"))

    @property
    def holds_values(self) -> bool:
        """Whether there is any value to guard."""
        return any(block.size for block in self._blocks.values())

    def changed(self) -> list[str]:
        """Say what differs from the snapshot, bit by bit; empty where nothing does.

        A tensor is named where elements that it shows differ, or where it was given another shape, other
        strides or other memory. Bytes that no tensor shows are reported by the tensors that share the block.
        """
        report = [f"{each.name} (its entries were replaced)" for each in self._containers if each.changed()]
        moved = [held for held in self._held if held.changed_form()]
        report += [f"{held.name} (its shape, strides, dtype, memory or requires_grad)" for held in moved]
        for block in self._blocks.values():
            if block.intact():
                continue
            owners = [held for held in self._held if held.block is block]
            names = [held.name for held in owners if held not in moved and not held.same_elements()]
            if names:
                report += names
            elif not any(held in moved for held in owners):
                report.append(f"memory beside what {' and '.join(h.name for h in owners)} shows of it")
        return report

    def breach(self) -> str:
        """Put changed inputs back, and name them."""
        changed = self.changed()
        if not changed:
            return ""
        self.restore()
        return (
            f"wrote to the inputs that all implementations share ({', '.join(changed)});"
            " give it private copies in Implementation(args=...) and restore them in reset"
        )

    def restore(self) -> None:
        """Put everything back in place: the same tensors, at the same addresses, hold the same bits.

        Only memory that was itself resized comes back at another address.
        """
        for each in (*self._blocks.values(), *self._held, *self._containers):
            each.restore()


class _Block:
    """One block of memory and a copy of it."""

    def __init__(self, storage: torch.UntypedStorage, device: torch.device) -> None:
        self.storage, self.size, self._device = storage, storage.nbytes(), device
        self.saved = self._bytes().clone()

    def _bytes(self) -> torch.Tensor:
        return torch.empty(0, dtype=torch.uint8, device=self._device).set_(self.storage)

    def intact(self) -> bool:
        if self.storage.nbytes() != self.size:
            return False
        cut = self.size // 8 * 8  # bytes cost eight times the work of 64-bit words
        (now, now_rest), (then, then_rest) = (
            (each[:cut].view(torch.int64), each[cut:]) for each in (self._bytes(), self.saved)
        )
        return same_bits(now, then) and same_bits(now_rest, then_rest)

    def restore(self) -> None:
        if self.storage.nbytes() != self.size:
            self.storage.resize_(self.size)
        self._bytes().copy_(self.saved)


class _Held:
    """One tensor: its name, its form, and the block it shows a part of."""

    def __init__(self, name: str, tensor: torch.Tensor, block: _Block) -> None:
        self.name, self.tensor, self.block = name, tensor, block
        self._form = _form(tensor)
        # keeps the memory and the form, whatever is done to the tensor itself
        self._original = tensor.detach()
        self._gradient = tensor.grad if tensor.is_leaf else None

    def changed_form(self) -> bool:
        elsewhere = self.tensor.untyped_storage().data_ptr() != self.block.storage.data_ptr()
        return elsewhere or _form(self.tensor) != self._form

    def same_elements(self) -> bool:
        """Whether the elements that the original form shows are as they were; False where they are gone."""
        if self.block.storage.nbytes() < self.block.size:
            return False
        memories = (self.block.storage, self.block.saved.untyped_storage())
        return same_bits(*(physical(self._original, memory) for memory in memories))

    def restore(self) -> None:
        if self.changed_form():
            self.tensor.data = self._original
            if self.tensor.requires_grad != self._form[-1]:
                # torch refuses to detach a view in place: then its bits are back, and what cannot be undone is
                # kept as the form from here on, so that nobody else is blamed for it
                with contextlib.suppress(RuntimeError):
                    if not self.tensor.is_leaf:
                        self.tensor.detach_()
                    self.tensor.requires_grad_(self._form[-1])
                self._form = _form(self.tensor)
        if self.tensor.is_leaf and self.tensor.grad is not self._gradient:
            # a gradient left behind would be added to by the next implementation, at its cost
            self.tensor.grad = self._gradient


@dataclass(slots=True, eq=False)
class _Container:
    """A list, a dict or an object among the arguments, and what stood in it; of an object, its tensors."""

    name: str
    container: Any
    entries: dict[Any, Any]

    def changed(self) -> bool:
        if isinstance(self.container, dict):
            now = self.container
        elif isinstance(self.container, list):
            now = dict(enumerate(self.container))
        else:
            now = {name: getattr(self.container, name, None) for name in self.entries}
        return now.keys() != self.entries.keys() or any(now[k] is not v for k, v in self.entries.items())

    def restore(self) -> None:
        if not self.changed():
            return
        if isinstance(self.container, dict):
            self.container.clear()
            self.container.update(self.entries)
        elif isinstance(self.container, list):
            self.container[:] = self.entries.values()
        else:
            for name, item in self.entries.items():
                setattr(self.container, name, item)


def differing(tensors: Any, expected: Any) -> list[str]:
    """Name the tensors among ``tensors`` that differ from their counterparts in ``expected``, in form or in a bit.

    What is no tensor is left alone.
    """
    ours, theirs = (list(held_tensors(each, "inputs")) for each in (tensors, expected))
    if len(ours) != len(theirs):
        return ["inputs (how many there are)"]
    return [
        name
        for (_, mine), (name, kept) in zip(ours, theirs, strict=True)
        if unreal(mine)
        or (mine.shape, mine.dtype, mine.device) != (kept.shape, kept.dtype, kept.device)
        or not same_bits(physical(mine), physical(kept))
    ]


def _containers(value: Any, name: str) -> Iterator[_Container]:
    """Give lists, dicts, and the objects that hold tensors in attributes of theirs."""
    if isinstance(value, dict | list | tuple):
        entries = dict(value if isinstance(value, dict) else enumerate(value))
        if not isinstance(value, tuple):
            yield _Container(name, value, entries)
        for key, item in entries.items():
            yield from _containers(item, f"{name}[{key!r}]")
    elif not isinstance(value, torch.Tensor):
        held = {key: item for key, item in attributes(value) if isinstance(item, torch.Tensor)}
        if held:
            yield _Container(name, value, held)


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        *(tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype),
        *(tensor.is_conj(), tensor.is_neg(), tensor.requires_grad),
    )


# --- canaries --------------------------------------------------------------------------------------------

_GUARD_BYTES = 4096
"""On each side. A page: a multiple of what allocators align to (64 bytes on a CPU, 512 on CUDA devices), so
that the buffer itself is aligned as it would be alone."""


@dataclass(slots=True, eq=False)
class _Fenced:
    """One buffer in the middle of its memory."""

    name: str
    number: int
    buffer: torch.Tensor
    memory: torch.Tensor
    written: bool
    turn: int = 0

    def arm(self, turn: int) -> None:
        self.turn = turn
        self.memory[:_GUARD_BYTES] = self.memory[-_GUARD_BYTES:] = self._guard()

    def damage(self) -> Iterator[str]:
        guard = self._guard()
        late, early = self.memory[-_GUARD_BYTES:] != guard, self.memory[:_GUARD_BYTES] != guard
        if count := int(late.sum()):
            place = self.buffer.numel() + int(late.nonzero()[0]) // self.buffer.element_size()
            yield f"{count} bytes after the end of {self.name}, the first in the place of element {place}"
        if count := int(early.sum()):
            place = _GUARD_BYTES - int(early.nonzero()[-1])
            yield f"{count} bytes before the start of {self.name}, the nearest {place} bytes before it"

    def _guard(self) -> torch.Tensor:
        """Give the bytes of the guard: a mark of this buffer's own in turn 0 and 1, zeros in turn 2."""
        if self.turn == 2:
            return torch.zeros(_GUARD_BYTES, dtype=torch.uint8, device=self.memory.device)
        dtype = self.buffer.dtype
        has_nan = (dtype.is_floating_point or dtype.is_complex) and dtype.itemsize > 1
        word = mark(dtype if has_nan else torch.uint8, self.turn, self.number % MARKS)
        return (
            word.expand(_GUARD_BYTES // word.element_size())
            .contiguous()
            .view(torch.uint8)
            .to(self.memory.device)
        )


@dataclass(slots=True)
class Canaries(Guard):
    """Guard bytes around all buffers of one call: what is written beside a buffer is found, with its place.

    Each buffer has guards of its own, so that a value carried from one guard to another shows. They are NaN where
    there is one: what is read from there shows in the answer. A buffer that is written has two in turn, so that what
    leaves one of them as it is, as doubling does with a NaN, shows in every second call.
    """

    _fenced: list[_Fenced] = field(default_factory=list)

    error = OutOfBoundsError

    def around(self, name: str, values: torch.Tensor, *, written: bool) -> torch.Tensor:
        """Give a tensor that equals ``values`` and lies between two guards.

        Where it is not ``written``, all of its memory stays as it is, as the check of inputs expects.
        """
        size = values.numel() * values.element_size()
        memory = torch.empty(_GUARD_BYTES + size + _GUARD_BYTES, dtype=torch.uint8, device=values.device)
        buffer = memory[_GUARD_BYTES : _GUARD_BYTES + size].view(values.dtype).view(values.shape)
        buffer.copy_(values)
        self._fenced.append(_Fenced(name, len(self._fenced), buffer, memory, written))
        self._fenced[-1].arm(0)
        return buffer

    def breach(self) -> str:
        """Say what was written beside which buffer; the next call has the other guards."""
        damage = "; ".join(told for each in self._fenced for told in each.damage())
        for each in self._fenced:
            each.arm(1 - each.turn if each.written else 0)
        advice = "compare its loop bounds with the sizes of the buffers"
        return f"wrote outside its buffers: {damage}; {advice}" if damage else ""

    def readers(self, call: Callable[[], object], outputs: Mapping[str, torch.Tensor]) -> str:
        """Say beside which buffers ``call`` reads, where NaN in its ``outputs`` come from there; blank where none do.

        It is called once for each buffer, with NaN around that one and zeros around the others. The guards are
        whole afterwards.
        """
        found = []
        for suspect in self._fenced:
            counts = []
            for turn in (0, 2):
                for each in self._fenced:
                    each.arm(turn if each is suspect else 2)
                call()
                counts.append(
                    sum(int(each.isnan().sum()) for each in outputs.values() if each.is_floating_point())
                )
            if counts[0] > counts[1]:
                found.append(suspect.name)
        for each in self._fenced:
            each.arm(0)
        return ", ".join(found)
