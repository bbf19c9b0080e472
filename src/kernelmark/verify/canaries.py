"""Guard bytes around buffers: what is written beside a buffer is found, with its place.

Each buffer has guards of its own, so that a value carried from one guard to another shows. They are NaN where
there is one: what is read from there shows in the answer. A buffer that is written has two in turn, so that what
leaves one of them as it is, as doubling does with a NaN, shows in every second call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from kernelmark.errors import OutOfBoundsError
from kernelmark.verify.guarding import Guard

__all__ = ["Canaries"]

_GUARD_BYTES = 4096
"""On each side. A page: a multiple of what allocators align to (64 bytes on a CPU, 512 on CUDA devices), so
that the buffer itself is aligned as it would be alone."""

_NAN_PAYLOADS = {
    torch.float64: (0x7FF8_0000_0000_0000, 0x5A5A_5A5A_5A5A),
    torch.float32: (0x7FC0_0000, 0x05_A5A5),
    torch.float16: (0x7E00, 0x5A),
    torch.bfloat16: (0x7FC0, 0x1A),
}
"""The NaN that arithmetic makes, and what the guards' have in the bits below, which no arithmetic makes by itself."""
_NUMBERS = 0x3C
"""As many guards can be told apart in bfloat16, which has six bits below its quiet one."""
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _pattern(dtype: torch.dtype, number: int, turn: int) -> torch.Tensor:
    """Give one element of the guard that buffer ``number`` has in its ``turn``: 0, 1, or 2 for zeros.

    In floats turn 0 is a NaN with the number in its payload, turn 1 a large number below zero. Elsewhere both are
    bytes of their own, neither 0 nor 1.
    """
    number %= _NUMBERS
    if turn == 2:
        return torch.zeros(1, dtype=dtype)
    if dtype not in _NAN_PAYLOADS:
        byte = (0x5A + 2 * number) % 0x7E + 2
        return torch.full((dtype.itemsize,), byte if turn == 0 else 0xFF - byte, dtype=torch.uint8).view(
            dtype
        )
    if turn == 0:
        nan, payload = _NAN_PAYLOADS[dtype]
        bits = nan | payload & ~0x3F | 1 + (payload + number) % _NUMBERS
        return torch.tensor([bits], dtype=torch.int64).to(_BITS[dtype.itemsize]).view(dtype)
    return torch.tensor([-(0.5 + number / (2 * _NUMBERS)) * torch.finfo(dtype).max], dtype=dtype)


@dataclass(slots=True, eq=False)
class _Guarded:
    """One buffer in the middle of its memory."""

    name: str
    number: int
    buffer: torch.Tensor
    memory: torch.Tensor
    written: bool
    turn: int = 0

    @property
    def _edges(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.memory[:_GUARD_BYTES], self.memory[len(self.memory) - _GUARD_BYTES :]

    def arm(self, turn: int) -> None:
        self.turn = turn
        for edge in self._edges:
            edge.copy_(self._expected())

    def damage(self) -> str:
        item, told = self.buffer.element_size(), []
        early, late = ((edge != self._expected()).nonzero() for edge in self._edges)
        if len(late):
            place = f"the first in the place of element {self.buffer.numel() + int(late[0]) // item}"
            told.append(f"{len(late)} bytes after the end of {self.name}, {place}")
        if len(early):
            place = f"the nearest {_GUARD_BYTES - int(early[-1])} bytes before it"
            told.append(f"{len(early)} bytes before the start of {self.name}, {place}")
        return "; ".join(told)

    def _expected(self) -> torch.Tensor:
        element = _pattern(self.buffer.dtype, self.number, self.turn).view(torch.uint8)
        return element.repeat(_GUARD_BYTES // len(element)).to(self.memory.device)


@dataclass(slots=True)
class Canaries(Guard):
    """The guards around all buffers of one call."""

    _guarded: list[_Guarded] = field(default_factory=list)

    def around(self, name: str, values: torch.Tensor, *, written: bool) -> torch.Tensor:
        """Give a tensor that equals ``values`` and lies between two guards.

        Where it is not ``written``, all of its memory stays as it is, as the check of inputs expects.
        """
        size = math.prod(values.shape) * values.element_size()
        memory = torch.empty(_GUARD_BYTES + size + _GUARD_BYTES, dtype=torch.uint8, device=values.device)
        buffer = memory[_GUARD_BYTES : _GUARD_BYTES + size].view(values.dtype).view(values.shape)
        buffer.copy_(values)
        self._guarded.append(_Guarded(name, len(self._guarded), buffer, memory, written))
        self._guarded[-1].arm(0)
        return buffer

    def damage(self) -> str:
        """Say what was written beside which buffer, blank where nothing was; the next call has the other guards."""
        told = [found for each in self._guarded if (found := each.damage())]
        for each in self._guarded:
            each.arm(1 - each.turn if each.written else 0)
        return "; ".join(told)

    def exit(self, who: str) -> OutOfBoundsError | None:
        """Say what was written beside which buffer; the next call has the other guards."""
        damage = self.damage()
        if not damage:
            return None
        return OutOfBoundsError(
            f"{who} wrote outside its buffers: {damage}; compare its loop bounds with the sizes of the buffers"
        )

    def readers(self, call: Callable[[], object], outputs: Mapping[str, torch.Tensor]) -> str:
        """Say beside which buffers ``call`` reads, where NaN in its ``outputs`` come from there; blank where none do.

        It is called once for each buffer, with NaN around that one and zeros around the others. The guards are
        whole afterwards.
        """
        found = []
        for suspect in self._guarded:
            counts = []
            for turn in (0, 2):
                for each in self._guarded:
                    each.arm(turn if each is suspect else 2)
                call()
                counts.append(
                    sum(int(each.isnan().sum()) for each in outputs.values() if each.is_floating_point())
                )
            if counts[0] > counts[1]:
                found.append(suspect.name)
        for each in self._guarded:
            each.arm(0)
        return ", ".join(found)
