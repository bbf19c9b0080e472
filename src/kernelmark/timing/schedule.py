"""The order of the passes of a comparison. Pure.

A block runs A B C C B A, so that a drift that is linear over the block is the same for all. The next block
runs C B A A B C, so that no implementation is always the first after a pause or the one after the slowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Slot", "schedule"]


@dataclass(frozen=True, slots=True)
class Slot:
    """One pass: whose, in which block, and at which place in it; both counted from 0."""

    name: str
    block: int
    position: int


def schedule(names: Sequence[str], blocks: int) -> tuple[Slot, ...]:
    """Return the passes of ``blocks`` blocks in the order in which they run."""
    forward = (*names, *reversed(names))
    backward = (*reversed(names), *names)
    return tuple(
        Slot(name, block, position)
        for block in range(blocks)
        for position, name in enumerate(backward if block % 2 else forward)
    )
