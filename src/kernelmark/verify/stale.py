"""Other values at the same addresses, so that an answer that was kept instead of computed is found.

An implementation that remembers by address, by shape, or by a fingerprint of the content is called once on
values that were permuted and once on values of which two were swapped. If it keeps either answer, it gives
that one when the inputs proper come back. An :class:`InputGuard` brings them back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from kernelmark.verify.elements import gather, is_packed, piece_size, scatter
from kernelmark.verify.structure import leaves, unreal

__all__ = ["StaleGuard", "permuted"]

_CANDIDATES = 4096
"""Places looked at for a partner whose value differs most: the extremes of so many are far from any value."""

_SMALL = 1 << 20
"""Up to so many entries a permutation is drawn entry by entry: 8 MiB of indices."""


class StaleGuard:
    """Changes the values of floating-point and complex inputs in place, within their own set of values.

    Integers and booleans are left alone, with every tensor that shares their memory: they may be indices, and
    an index out of range does more harm than a wrong answer.

    Args:
        inputs: The tensors, in whatever nesting; each is changed once however often it is named.
        seed: Where the changes come from.
    """

    __slots__ = ("_random", "_tensors")

    def __init__(self, inputs: Any, *, seed: int = 0) -> None:
        self._tensors = list(_changeable(inputs))
        self._random = torch.Generator(device="cpu").manual_seed(seed)

    def scramble(self) -> tuple[str, ...]:
        """Permute the values of each tensor; give the names of those that differ now."""
        return tuple(name for name, tensor in self._tensors if self._scramble(tensor))

    def nudge(self) -> tuple[str, ...]:
        """Swap one random element of each tensor with one that differs; give the names of those that had.

        The sum, the values and all but two elements stay as they are: a fingerprint that samples misses it.
        """
        return tuple(name for name, tensor in self._tensors if self._nudge(tensor))

    def _scramble(self, tensor: torch.Tensor) -> bool:
        words = gather(tensor)
        other = permuted(words, self._random)
        if torch.equal(other, words):
            other = words.roll(1, 0)
        if torch.equal(other, words):
            return False
        scatter(tensor, other)
        return True

    def _nudge(self, tensor: torch.Tensor) -> bool:
        words = gather(tensor)
        here = int(torch.randint(len(words), (1,), generator=self._random)) if len(words) else 0
        there = self._partner(words, here, tensor.dtype)
        if there is None:
            return False
        words[[here, there]] = words[[there, here]]
        scatter(tensor, words)
        return True

    def _partner(self, words: torch.Tensor, here: int, dtype: torch.dtype) -> int | None:
        """Choose the place whose value is furthest from the one ``here``; ``None`` where all bits agree."""
        count = len(words)
        if count < 2:
            return None
        places = torch.randint(count, (min(count, _CANDIDATES),), generator=self._random)
        values = _values(words[places.to(words.device)], dtype)
        distance = (values - _values(words[here : here + 1], dtype)).abs().nan_to_num(nan=0.0)
        best = int(places[distance.argmax()])
        if bool((words[best] != words[here]).any()):
            return best
        step = piece_size(words.device)
        for start in range(0, count, step):
            differs = words[start : start + step] != words[here]
            differs = differs.any(-1) if differs.dim() == 2 else differs
            if bool(differs.any()):
                return start + int(differs.to(torch.uint8).argmax())
        return None


def permuted(words: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Give the entries of the first dimension in another order.

    Many entries are laid out as a square and its rows and columns permuted, so that the permutation costs the
    square root of their number instead of eight bytes an entry; the few that are left over stay in place.
    """
    count = len(words)
    if count <= _SMALL:
        return words[torch.randperm(count, generator=random).to(words.device)]
    side = math.isqrt(count)
    rows = count // side
    square = words[: rows * side].reshape(rows, side, *words.shape[1:])
    mixed = square[torch.randperm(rows, generator=random).to(words.device)]
    mixed = mixed[:, torch.randperm(side, generator=random).to(words.device)]
    return torch.cat([mixed.reshape(rows * side, *words.shape[1:]), words[rows * side :]])


def _values(words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    values = words.reshape(-1).view(dtype).cpu()
    return values.to(torch.complex128 if dtype.is_complex else torch.float64)


def _changeable(inputs: Any) -> Iterator[tuple[str, torch.Tensor]]:
    tensors = [leaf for leaf in leaves(inputs, "inputs") if isinstance(leaf.value, torch.Tensor)]
    tensors = [leaf for leaf in tensors if unreal(leaf.value) is None and leaf.value.numel()]
    fixed = {_memory(leaf.value) for leaf in tensors if not _inexact(leaf.value)}
    seen = set()
    for leaf in tensors:
        tensor = leaf.value
        form = (_memory(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if _inexact(tensor) and _memory(tensor) not in fixed and form not in seen:
            seen.add(form)
            yield leaf.name, tensor


def _inexact(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() and not is_packed(tensor.dtype)) or tensor.is_complex()


def _memory(tensor: torch.Tensor) -> tuple[str, int]:
    return str(tensor.device), tensor.untyped_storage().data_ptr()
