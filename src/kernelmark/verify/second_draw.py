"""Other inputs of the same types, so that an answer that only happens to be right on the first ones is found.

Numbers drawn from 0 to 1 make relu and abs the identity, and an identity matrix as a factor lets a copy pass for a
product. The values of each float input are permuted, and where none of them is negative, signs are drawn as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelmark.verify.stale import permuted

__all__ = ["second_draw"]


def second_draw(
    model: Callable[..., Any], inputs: Sequence[Any], *, seed: int
) -> tuple[tuple[Any, ...] | None, str]:
    """Give other inputs on which the model has a finite answer, and blank text; or ``None`` and why not.

    Args:
        model: Called on copies; it may write them.
        inputs: The first draw.
        seed: Where the permutations and signs come from.
    """
    if not any(_is_float(leaf) for leaf in pytree.tree_leaves(tuple(inputs))):
        return None, "it has no float input that could be drawn again"
    why = ""
    for signs in (True, False):
        drawn = _drawn(inputs, seed, signs=signs)
        try:
            with torch.no_grad():
                answer = model(*pytree.tree_map(_clone, drawn))
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
            values = values * (
                1 - 2 * torch.randint(0, 2, values.shape, generator=random, dtype=torch.int8)
            ).to(values)
        return values if values.data_ptr() != leaf.data_ptr() else values.clone()

    return pytree.tree_map(draw, tuple(inputs))


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def _clone(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf
