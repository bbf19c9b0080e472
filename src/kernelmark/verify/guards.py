"""Protects the inputs that all implementations share: what they were, whether they still are, and back again.

Whole memory blocks are kept, not tensors, so that aliases, views and expanded tensors come back bit for bit,
with the bytes that no view shows. The price is one copy of every block, on its own device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelmark.errors import InputsModifiedError, UsageError, VerificationError
from kernelmark.verify.conduct import settings
from kernelmark.verify.elements import bits, physical, pieces
from kernelmark.verify.guarding import Guard
from kernelmark.verify.poisoning import poison, untouched, unwritten
from kernelmark.verify.structure import attributes, held_tensors, unreal

__all__ = ["InputGuard", "OwnedOutputs", "Renewed", "Settings", "SharedInputs", "differing"]

_BYTES_AT_A_TIME = 1 << 26
"""Memory compared at a time; the comparison's own intermediate is an eighth of it."""


class InputGuard:
    """A snapshot of every tensor in ``tensors``, made when it is built.

    Args:
        tensors: A mapping from names to tensors, or the arguments of a call; containers and objects in it are
            followed, arrays of numpy's are guarded as tensors are, and numbers and text are left alone.

    Raises:
        UsageError: a tensor that has no plain memory: sparse, quantised, nested, or of a subclass; or something
            else that holds values.
    """

    __slots__ = ("_blocks", "_containers", "_held")

    def __init__(self, tensors: Any) -> None:
        found = list(_named(tensors))
        for name, tensor in found:
            reason = unreal(tensor)
            if reason is not None:
                raise UsageError(f"{name} {reason}; inputs of this kind cannot be kept and restored")
        self._blocks: dict[tuple[str, int, int], _Block] = {}
        self._held = [_Held.take(name, tensor, self._block(tensor)) for name, tensor in found]
        self._containers = [*_mutable_containers(tensors, "inputs"), *_objects(tensors, "inputs")]

    @property
    def holds_values(self) -> bool:
        """Whether there is any value to guard."""
        return any(block.size for block in self._blocks.values())

    def changed(self) -> list[str]:
        """Say what differs from the snapshot, bit by bit; empty where nothing does.

        A tensor is named where elements that it shows differ, or where it was given another shape, other
        strides or other memory. Bytes that no tensor shows are reported by the tensors that share the block.
        """
        report = [f"{c.name} (its entries were replaced)" for c in self._containers if c.changed()]
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

    def restore(self) -> None:
        """Put everything back in place: the same tensors, at the same addresses, hold the same bits.

        Only memory that was itself resized comes back at another address.
        """
        for block in self._blocks.values():
            block.restore()
        for held in self._held:
            held.restore_form()
        for container in self._containers:
            container.restore()

    def _block(self, tensor: torch.Tensor) -> _Block:
        storage = tensor.untyped_storage()
        key = (str(tensor.device), storage.data_ptr(), storage.nbytes())
        if key not in self._blocks:
            self._blocks[key] = _Block.take(storage, tensor.device)
        return self._blocks[key]


@dataclass(slots=True, eq=False)
class _Block:
    """One block of memory and a copy of it."""

    storage: torch.UntypedStorage
    size: int
    saved: torch.Tensor

    @classmethod
    def take(cls, storage: torch.UntypedStorage, device: torch.device) -> _Block:
        return cls(storage, storage.nbytes(), _as_bytes(storage, device).clone())

    def intact(self) -> bool:
        if self.storage.nbytes() != self.size:
            return False
        now = _as_bytes(self.storage, self.saved.device)
        return all(
            torch.equal(
                _as_words(now[at : at + _BYTES_AT_A_TIME]), _as_words(self.saved[at : at + _BYTES_AT_A_TIME])
            )
            for at in range(0, self.size, _BYTES_AT_A_TIME)
        )

    def restore(self) -> None:
        if self.storage.nbytes() != self.size:
            self.storage.resize_(self.size)
        _as_bytes(self.storage, self.saved.device).copy_(self.saved)


@dataclass(slots=True, eq=False)
class _Held:
    """One tensor: its name, its form, and the block it shows a part of."""

    name: str
    tensor: torch.Tensor
    form: tuple[Any, ...]
    original: torch.Tensor
    """Shares the tensor's memory and keeps its form, whatever is done to the tensor itself."""
    gradient: torch.Tensor | None
    block: _Block

    @classmethod
    def take(cls, name: str, tensor: torch.Tensor, block: _Block) -> _Held:
        gradient = tensor.grad if tensor.is_leaf else None
        return cls(name, tensor, _form(tensor), tensor.detach(), gradient, block)

    def changed_form(self) -> bool:
        elsewhere = self.tensor.untyped_storage().data_ptr() != self.block.storage.data_ptr()
        return elsewhere or _form(self.tensor) != self.form

    def same_elements(self) -> bool:
        """Whether the elements that the original form shows are as they were; False where they are gone."""
        if self.block.storage.nbytes() < self.block.size:
            return False
        now, then = (
            _view(memory, self.original)
            for memory in (self.block.storage, self.block.saved.untyped_storage())
        )
        return all(torch.equal(bits(a), bits(b)) for _, (a, b) in pieces(now, then))

    def restore_form(self) -> None:
        if self.changed_form():
            self.tensor.data = self.original
            self._restore_requires_grad()
        if self.tensor.is_leaf and self.tensor.grad is not self.gradient:
            # a gradient left behind would be added to by the next implementation, at its cost
            self.tensor.grad = self.gradient

    def _restore_requires_grad(self) -> None:
        wanted = self.form[-1]
        if self.tensor.requires_grad == wanted:
            return
        # torch refuses to detach a view in place: then its bits are back, and what cannot be undone is kept
        # as the form from here on, so that nobody else is blamed for it
        with contextlib.suppress(RuntimeError):
            if not self.tensor.is_leaf:
                self.tensor.detach_()
            self.tensor.requires_grad_(wanted)
        self.form = _form(self.tensor)


@dataclass(slots=True, eq=False)
class _Container:
    """A list, a dict or an object among the arguments, and what stood in it; of an object, its tensors."""

    name: str
    container: Any
    entries: Any

    def changed(self) -> bool:
        now = self.container
        if not isinstance(now, dict | list):
            return any(getattr(now, name, None) is not item for name, item in self.entries.items())
        if len(now) != len(self.entries):
            return True
        if isinstance(now, dict):
            return any(now.get(key, self) is not item for key, item in self.entries.items())
        return any(a is not b for a, b in zip(now, self.entries, strict=True))

    def restore(self) -> None:
        if not self.changed():
            return
        if isinstance(self.container, dict):
            self.container.clear()
            self.container.update(self.entries)
        elif isinstance(self.container, list):
            self.container[:] = self.entries
        else:
            for name, item in self.entries.items():
                setattr(self.container, name, item)


# --- guards: what every call is held against -------------------------------------------------------------


@dataclass(slots=True)
class SharedInputs(Guard):
    """The inputs that all implementations share are what they were, bit by bit."""

    kept: InputGuard

    def exit(self, who: str) -> VerificationError | None:
        """Put changed inputs back, and name them."""
        changed = self.kept.changed()
        if not changed:
            return None
        self.kept.restore()
        return InputsModifiedError(
            f"{who} wrote to the inputs that all implementations share ({', '.join(changed)});"
            " give it private copies in Implementation(args=...) and restore them in reset"
        )


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

    def exit(self, who: str) -> VerificationError | None:
        """Name the elements that kept the poisons of two calls: nobody wrote them."""
        if not self._entered:
            return None
        now = untouched(self.tensors, self._which)
        kept = unwritten(self._before, now)
        self._before, self._which, self._entered = now, 1 - self._which, False
        if not kept:
            return None
        return VerificationError(f"{who} left part of its own output unwritten: {kept[0]}")


@dataclass(slots=True)
class Renewed(Guard):
    """Arguments into which ``reset`` puts other values before each call.

    Args:
        arguments: What calls get.
        drawn: Gives the values that the last ``reset`` put there; outputs are compared with the answer to those.
    """

    arguments: tuple[Any, ...]
    drawn: Callable[[], tuple[Any, ...]]

    def given(self) -> tuple[Any, ...]:
        """Give the values that the last call got."""
        return self.drawn()

    def exit(self, who: str) -> VerificationError | None:
        """Name the arguments that are not what was drawn."""
        written = differing(self.arguments, self.drawn())
        if not written:
            return None
        return InputsModifiedError(
            f"{who} wrote to its inputs ({', '.join(written)}); it must leave them as they were"
        )


@dataclass(slots=True)
class Settings(Guard):
    """What holds for the whole process, such as the number of threads, is for no implementation to change."""

    _before: Mapping[str, Any] = field(default_factory=settings)

    def exit(self, who: str) -> VerificationError | None:
        """Name the first that has changed since the check began; the next is held against what it is now."""
        before, self._before = self._before, settings()
        for name, value in before.items():
            now = self._before.get(name, value)
            # operators are registered where a library is first used, torch's own compiler among them
            if now != value and not isinstance(value, frozenset):
                return VerificationError(
                    f"{who} left {name} changed, from {value} to {now}: that holds for all that it is compared"
                    " with; let it put that back"
                )
        return None


def differing(tensors: Any, expected: Any) -> list[str]:
    """Name the tensors among ``tensors`` that differ from their counterparts in ``expected``, in form or in a bit.

    What is no tensor is left alone.
    """
    named = [name for name, _ in _named(expected)]
    theirs = [value for _, value in _named(expected)]
    ours = [value for _, value in _named(tensors)]
    if len(ours) != len(theirs):
        return ["inputs (how many there are)"]
    return [
        name for name, mine, kept in zip(named, ours, theirs, strict=True) if not _same_tensor(mine, kept)
    ]


def _same_tensor(mine: torch.Tensor, kept: torch.Tensor) -> bool:
    if unreal(mine) or (mine.shape, mine.dtype, mine.device) != (kept.shape, kept.dtype, kept.device):
        return False
    return all(
        torch.equal(one, other) for _, (one, other) in pieces(bits(physical(mine)), bits(physical(kept)))
    )


def _named(tensors: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Walk all tensors; an argument of a mapping is called by its own name."""
    if isinstance(tensors, Mapping):
        for name, value in tensors.items():
            yield from ((leaf.name, leaf.value) for leaf in held_tensors(value, str(name)))
    else:
        yield from ((leaf.name, leaf.value) for leaf in held_tensors(tensors, "inputs"))


def _mutable_containers(value: Any, name: str) -> Iterator[_Container]:
    if isinstance(value, dict):
        yield _Container(name, value, dict(value))
        entries: Any = value.items()
    elif isinstance(value, list):
        yield _Container(name, value, list(value))
        entries = enumerate(value)
    elif isinstance(value, tuple):
        entries = enumerate(value)
    else:
        return
    for key, item in entries:
        yield from _mutable_containers(item, f"{name}[{key!r}]")


def _objects(value: Any, name: str) -> Iterator[_Container]:
    """Give the objects that hold tensors in attributes of theirs, with those."""
    if isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _objects(item, f"{name}[{key!r}]")
    elif not isinstance(value, torch.Tensor):
        held = {key: item for key, item in attributes(value) if isinstance(item, torch.Tensor)}
        if held:
            yield _Container(name, value, held)


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        tensor.storage_offset(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
        tensor.is_conj(),
        tensor.is_neg(),
        tensor.requires_grad,
    )


def _view(memory: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    view = torch.empty(0, dtype=like.dtype, device=like.device)
    return view.set_(memory, like.storage_offset(), like.shape, like.stride())


def _as_bytes(storage: torch.UntypedStorage, device: torch.device) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


def _as_words(data: torch.Tensor) -> torch.Tensor:
    """View bytes as 64-bit words where they divide into them: an eighth of the work to compare."""
    return data.view(torch.int64) if data.numel() % 8 == 0 and data.storage_offset() % 8 == 0 else data
