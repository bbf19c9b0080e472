"""Guard bytes around the buffers of ``solve``: what is written beside a buffer is found, with its place.

They hold the poison of the buffer's type, NaN for floats, so that what is read from there shows in the answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from kernelmark.verify import poison

__all__ = ["Canaries"]

_GUARD_BYTES = 4096
"""On each side. A page: a multiple of what allocators align to (64 bytes on a CPU, 512 on CUDA devices), so
that the buffer itself is aligned as it would be alone."""

_BYTE = 0x5A
"""Around booleans, whose poison is a value that a kernel may well write."""


@dataclass(frozen=True, slots=True, eq=False)
class _Guarded:
    """One buffer in the middle of its memory."""

    name: str
    memory: torch.Tensor
    size: int
    item: int
    before: torch.Tensor
    after: torch.Tensor
    """What the two guards hold, as bytes."""

    def damage(self) -> str:
        end = _GUARD_BYTES + self.size
        told = []
        late = (self.memory[end:] != self.after).nonzero()
        if len(late):
            place = f"the first in the place of element {self.size // self.item + int(late[0]) // self.item}"
            told.append(f"{len(late)} bytes after the end of {self.name}, {place}")
        early = (self.memory[:_GUARD_BYTES] != self.before).nonzero()
        if len(early):
            place = f"the nearest {_GUARD_BYTES - int(early[-1])} bytes before it"
            told.append(f"{len(early)} bytes before the start of {self.name}, {place}")
        return "; ".join(told)

    def restore(self) -> None:
        self.memory[:_GUARD_BYTES].copy_(self.before)
        self.memory[_GUARD_BYTES + self.size :].copy_(self.after)


@dataclass(slots=True)
class Canaries:
    """The guards around all buffers of one call."""

    _guarded: list[_Guarded] = field(default_factory=list)

    def around(self, name: str, values: torch.Tensor) -> torch.Tensor:
        """Give a tensor that equals ``values`` and lies between two guards."""
        item = values.element_size()
        size = math.prod(values.shape) * item
        memory = torch.empty(_GUARD_BYTES + size + _GUARD_BYTES, dtype=torch.uint8, device=values.device)
        edges = memory[:_GUARD_BYTES], memory[_GUARD_BYTES + size :]
        for edge in edges:
            if values.dtype == torch.bool:
                edge.fill_(_BYTE)
            else:
                poison(edge.view(values.dtype), 0)
        buffer = memory[_GUARD_BYTES : _GUARD_BYTES + size].view(values.dtype).view(values.shape)
        buffer.copy_(values)
        self._guarded.append(_Guarded(name, memory, size, item, edges[0].clone(), edges[1].clone()))
        return buffer

    def damage(self) -> str:
        """Say what was written beside which buffer, and repair it; blank where nothing was."""
        told = [found for each in self._guarded if (found := each.damage())]
        if told:
            for each in self._guarded:
                each.restore()
        return "; ".join(told)
