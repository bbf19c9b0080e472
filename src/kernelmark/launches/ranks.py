"""What ranks tell each other, over nothing but the largest of one number.

A rank that has nothing to say in a turn gives ``SILENT``; so the largest value is what the one rank said whose
turn it is. Numbers stay below 2^24 where they must be exact, since a callback may reduce in single precision.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from kernelmark.errors import DistributedError
from kernelmark.launches.context import DistributedBenchContext

__all__ = ["Ranks", "slowest"]

SILENT = -1.0
_CHUNK = 3
_LONGEST_TEXT = 1500
_SINGLE_PRECISION = 1e-6


class Ranks:
    """This rank and the others."""

    def __init__(self, context: DistributedBenchContext) -> None:
        self.rank, self.world_size = context.rank, context.world_size
        self._max_reduce = context.max_reduce

    def values(self, mine: float) -> tuple[float, ...]:
        """Give every rank's number, in the order of ranks; numbers of at least 0.

        Raises:
            DistributedError: what came back cannot be the largest of what was given.
        """
        return tuple(self._say(mine if who == self.rank else SILENT, who) for who in range(self.world_size))

    def texts(self, mine: str) -> tuple[str, ...]:
        """Give every rank's text, in the order of ranks, cut to a bounded length."""
        said = mine.encode()[:_LONGEST_TEXT]
        texts = []
        for who, length in enumerate(self.values(len(said))):
            found = b""
            for start in range(0, int(length), _CHUNK):
                size = min(_CHUNK, int(length) - start)
                chunk = int.from_bytes(said[start : start + size]) if who == self.rank else SILENT
                found += round(self._say(chunk, who)).to_bytes(size)
            texts.append(found.decode(errors="replace"))
        return tuple(texts)

    def agree(self, what: str, mine: str) -> None:
        """Check that every rank says the same.

        Raises:
            DistributedError: they do not, on every rank, with what each one says.
        """
        digest = hashlib.sha256(mine.encode()).digest()
        parts = (digest[:_CHUNK], digest[_CHUNK : 2 * _CHUNK])
        if all(len(set(self.values(int.from_bytes(part)))) == 1 for part in parts):
            return
        said = "; ".join(f"rank {who}: {text}" for who, text in enumerate(self.texts(mine)))
        raise DistributedError(f"the ranks do not agree on {what}, so nothing was timed: {said}")

    def _say(self, value: float, who: int) -> float:
        largest = self._max_reduce(float(value))
        usable = isinstance(largest, int | float) and math.isfinite(largest)
        if not usable or largest < value - _SINGLE_PRECISION * abs(value):
            raise DistributedError(
                f"max_reduce({float(value)!r}) returned {largest!r} on rank {self.rank}: it must return the largest"
                " of the numbers that the ranks gave"
            )
        if largest < 0:
            raise DistributedError(
                f"max_reduce gave nothing from rank {who}: no process has that rank, or max_reduce does not reach it"
            )
        return float(largest)


def slowest(by_sample: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Give the largest over ranks of each sample; entry ``i`` holds sample ``i`` of every rank."""
    return tuple(max(each) for each in by_sample)
