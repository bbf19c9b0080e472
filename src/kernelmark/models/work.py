"""How much a call of a model has to compute and to move, counted where nobody says, compared where somebody does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from kernelmark.roofline import Work
from torchsched.elements import Element
from torchsched.graph_calls import without_onednn

__all__ = ["ModelWork", "count_work"]

_AGREES = 0.01
"""How far a stated count may lie from the counted one before it is told; formulas leave out a bias."""


@dataclass(frozen=True, slots=True)
class ModelWork:
    """The work of one call, as the engine asks an op for it."""

    flops: int
    bytes: int
    element: Element
    note: str = ""
    """What a reader must know of the count."""

    @property
    def gflops(self) -> float | None:
        """Billions of operations; ``None`` where there are none to count."""
        return self.flops / 1e9 or None

    def eval_roofline(self) -> Work:
        """Give the work to the engine."""
        return Work(self.flops, self.bytes, str(self.element.torch).removeprefix("torch."))


def count_work(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    element: Element,
    *,
    gflops: float | None = None,
    nbytes: int | None = None,
) -> ModelWork:
    """Count the operations of products and convolutions, and the bytes of what goes in and out, once each.

    The model is called once. What is stated takes the place of what is counted.

    Args:
        model: The model.
        inputs: What it is called with; it must not write them.
        element: The type that it computes in.
        gflops: What is said of its operations, in billions.
        nbytes: What is said of its bytes.
    """
    # of a recurrent layer that is one call of oneDNN's, the counter sees nothing
    with torch.no_grad(), without_onednn(), FlopCounterMode(display=False) as counter:
        outputs = model(*inputs)
    counted = counter.get_total_flops()
    stated = None if gflops is None else round(gflops * 1e9)
    return ModelWork(
        flops=counted if stated is None else stated,
        bytes=nbytes or _bytes([*model.parameters(), *model.buffers()], inputs, outputs),
        element=element,
        note=_disagreement(stated, counted),
    )


def _bytes(*values: Any) -> int:
    tensors = {id(leaf): leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)}
    return max(1, sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()))


def _disagreement(stated: int | None, counted: int) -> str:
    if not stated or not counted or abs(stated - counted) <= _AGREES * counted:
        return ""
    return (
        f"{stated / 1e9:.6g} GFLOP are stated, and its products and convolutions have {counted / 1e9:.6g}"
        f" ({stated / counted:.3g} times as many); figures go by what is stated"
    )
