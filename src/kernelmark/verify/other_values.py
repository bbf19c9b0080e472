"""Other values of inputs, so that an answer that was kept, or only happens to be right on the first ones, is found.

An implementation that remembers by address, by shape, or by a fingerprint of the content is called once on
values that were permuted and once on values of which two were swapped. If it keeps either answer, it gives
that one when the inputs proper come back. An :class:`InputGuard` brings them back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelmark.verify.memory import bits, gather, is_packed, physical, piece_size, pieces, scatter
from kernelmark.verify.structure import held_tensors, leaves, unreal

__all__ = ["StaleGuard", "fingerprint", "permuted", "second_draw"]

_CANDIDATES = 4096
"""Places looked at for a partner whose value differs most: the extremes of so many are far from any value."""

_SMALL = 1 << 20
"""Up to so many entries a permutation is drawn entry by entry: 8 MiB of indices."""


class StaleGuard:
    """Changes the values of inputs in place, within the range that they have.

    Floating-point and complex inputs first. Integers and booleans are left alone then, with every tensor that shares
    their memory: they may be indices, and an index out of range does more harm than a wrong answer.

    ``inputs`` are the tensors, in whatever nesting; each is changed once however often it is named.
    """

    __slots__ = ("_inputs", "_random", "_tensors")

    def __init__(self, inputs: Any, *, seed: int = 0) -> None:
        self._inputs = inputs
        self._tensors = list(_changeable(inputs, inexact=True))
        self._random = torch.Generator(device="cpu").manual_seed(seed)

    def scramble(self) -> tuple[str, ...]:
        """Permute the values of each tensor; give the names of those that differ now."""
        return _changed(self._tensors, self._permuted)

    def draw(self) -> tuple[str, ...]:
        """Permute the values of each tensor and scale each by a factor of its own; give the names of those changed.

        What a permutation leaves as it is, a sum, a maximum, a sorted order, is another one then. A factor is from
        a half to one, so that no value leaves the range from the smallest to the largest and zero.
        """
        return _changed(
            self._tensors, lambda words, dtype: self._scaled(self._permuted(words, dtype), dtype, each=True)
        )

    def rescale(self) -> tuple[str, ...]:
        """Scale each tensor as a whole: a triangle stays one, a symmetry too; give the names of those changed."""
        return _changed(self._tensors, lambda words, dtype: self._scaled(words.clone(), dtype, each=False))

    def draw_integers(self) -> tuple[str, ...]:
        """Draw integers between the smallest and the largest, permute booleans; give the names of those changed.

        What is in rising order, as offsets are, stays so with its two ends; what are all different, as the places of
        a permutation are, stay the same numbers.
        """
        return _changed(_changeable(self._inputs, inexact=False), self._other_integers)

    def nudge(self) -> tuple[str, ...]:
        """Swap one random element of each tensor with one that differs; give the names of those that had.

        The sum, the values and all but two elements stay as they are: a fingerprint that samples misses it.
        """
        return _changed(self._tensors, self._nudged)

    def _permuted(self, words: torch.Tensor, _dtype: torch.dtype) -> torch.Tensor:
        other = permuted(words, self._random)
        return words.roll(1, 0) if torch.equal(other, words) else other

    def _scaled(self, words: torch.Tensor, dtype: torch.dtype, *, each: bool) -> torch.Tensor:
        """Scale the numbers that ``words`` are the bits of, in place and in pieces of bounded size."""
        part = dtype.to_real()
        numbers, step = words.view(-1).view(part), piece_size(words.device)
        wide = torch.float64 if part == torch.float64 else torch.float32
        count = min(step, len(numbers)) if each else 1
        factors = 0.5 + torch.rand(count, generator=self._random, dtype=wide).to(words.device) / 2
        for piece in numbers.split(step):
            piece.copy_((piece.to(wide) * factors[: len(piece)]).to(part))
        return words

    def _other_integers(self, words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        values = words.view(dtype).cpu().to(torch.int64)
        low, high = int(values.min()), int(values.max())
        if dtype == torch.bool or len(values) == high - low + 1 == len(values.unique()):
            drawn = permuted(values, self._random)
        else:
            above = min(high + 1, 2**63 - 1)
            drawn = torch.randint(low, max(above, low + 1), values.shape, generator=self._random)
            if len(values) > 2 and bool((values[1:] >= values[:-1]).all()):
                drawn = drawn.sort().values
                drawn[0], drawn[-1] = low, high
        return drawn.to(dtype).view(words.dtype).to(words.device)

    def _nudged(self, words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        here = int(torch.randint(len(words), (1,), generator=self._random))
        # furthest from the one here, among some
        places = torch.randint(len(words), (min(len(words), _CANDIDATES),), generator=self._random)
        values = _wide(words[places.to(words.device)], dtype)
        distance = (values - _wide(words[here : here + 1], dtype)).abs().nan_to_num(nan=0.0)
        there = int(places[distance.argmax()])
        if torch.equal(words[there], words[here]):
            there = _first_other(words, here)
        swapped = words.clone()
        swapped[[here, there]] = words[[there, here]]
        return swapped


def _changed(
    tensors: Iterable[tuple[str, torch.Tensor]], change: Callable[[torch.Tensor, torch.dtype], torch.Tensor]
) -> tuple[str, ...]:
    """Put other bits into each tensor, which ``change`` makes of its own; give the names of those that differ."""
    found = []
    for name, tensor in tensors:
        words = gather(tensor)
        other = change(words, tensor.dtype)
        if not torch.equal(other, words):
            scatter(tensor, other)
            found.append(name)
    return tuple(found)


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


def fingerprint(outputs: Any) -> tuple[Any, ...]:
    """Tell an answer from others by its bits, without keeping it.

    Each word is multiplied by a number of its place and all are added, so that no two words can change places unseen.
    """
    found: list[Any] = []
    for leaf in leaves(outputs, "output"):
        if not isinstance(leaf.value, torch.Tensor):
            found.append(repr(leaf.value))
        elif unreal(leaf.value) is None and leaf.value.numel():
            total = 0
            for offset, (piece,) in pieces(bits(physical(leaf.value))):
                places = torch.arange(offset, offset + len(piece), device=piece.device)
                # residues below 2¹⁶ and odd factors below 2²⁰: sums of a piece stay within 64 bits
                factors = (places * 2_654_435 + 1) & 0xF_FFFF | 1
                words = piece.to(torch.int64)
                total += int((((words ^ words >> 32) & 0xFFFF_FFFF) % 65_521 * factors).sum())
            found.append((tuple(leaf.value.shape), total))
    return tuple(found)


def _first_other(words: torch.Tensor, here: int) -> int:
    """Find the first place whose bits differ from those ``here``; ``here`` where all agree."""
    for number, piece in enumerate(words.split(piece_size(words.device))):
        differs = (piece != words[here]).reshape(len(piece), -1).any(-1)
        if bool(differs.any()):
            return number * piece_size(words.device) + int(differs.to(torch.uint8).argmax())
    return here


def _wide(words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    values = words.reshape(-1).view(dtype).cpu()
    return values.to(torch.complex128 if dtype.is_complex else torch.float64)


def _changeable(inputs: Any, *, inexact: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """Give the tensors that are inexact, or that are not, each once; none that shares memory with one of the others."""
    tensors = [
        (name, each) for name, each in held_tensors(inputs, "inputs") if not unreal(each) and each.numel()
    ]
    others = {_memory(each) for _, each in tensors if _inexact(each) != inexact}
    seen = set()
    for name, tensor in tensors:
        form = (_memory(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if not (is_packed(tensor.dtype) or _memory(tensor) in others or form in seen):
            seen.add(form)
            yield name, tensor


def _inexact(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() and not is_packed(tensor.dtype)) or tensor.is_complex()


def _memory(tensor: torch.Tensor) -> tuple[str, int]:
    return str(tensor.device), tensor.untyped_storage().data_ptr()


# --- inputs drawn again ----------------------------------------------------------------------------------


def second_draw(
    model: Callable[..., Any], inputs: Sequence[Any], *, seed: int
) -> tuple[tuple[Any, ...] | None, str]:
    """Give other inputs on which the model has a finite answer, and blank text; or ``None`` and why not.

    Numbers drawn from 0 to 1 make relu and abs the identity, and an identity matrix as a factor lets a copy pass
    for a product. The values of each float input are permuted, and where none of them is negative, signs are drawn
    as well.

    The model is called on copies, which it may write.
    """
    if not any(_is_float(leaf) for leaf in pytree.tree_leaves(tuple(inputs))):
        return None, "it has no float input that could be drawn again"
    why = ""
    for signs in (True, False):
        drawn = _drawn(inputs, seed, signs=signs)
        try:
            with torch.no_grad():
                answer = model(*pytree.tree_map_only(torch.Tensor, torch.clone, drawn))
        except Exception as error:  # noqa: BLE001 - a model may refuse values that were only permuted
            why = f"the model raised {type(error).__name__} on permuted inputs"
            continue
        if all(bool(leaf.isfinite().all()) for leaf in pytree.tree_leaves(answer) if _is_float(leaf)):
            return drawn, ""
        why = "the model's answer on permuted inputs is not finite"
    return None, why


def _drawn(inputs: Sequence[Any], seed: int, *, signs: bool) -> tuple[Any, ...]:
    random = torch.Generator().manual_seed(seed)

    def draw(leaf: Any) -> Any:
        if not _is_float(leaf) or not leaf.numel():
            return leaf
        values = permuted(leaf.reshape(-1), random).reshape(leaf.shape).contiguous()
        if signs and not bool((values < 0).any()):
            sign = 1 - 2 * torch.randint(0, 2, values.shape, generator=random, dtype=torch.int8)
            values = values * sign.to(values)
        return values if values.data_ptr() != leaf.data_ptr() else values.clone()

    return pytree.tree_map(draw, tuple(inputs))


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
