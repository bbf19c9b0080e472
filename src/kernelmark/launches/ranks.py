"""Several ranks that measure together: what ``bench`` needs from each, and what they tell each other.

It knows no library that connects ranks; ``torch_ranks`` supplies one ready made. Whatever ranks tell each other goes
over nothing but the largest of one number. A rank that has nothing to say in a turn gives ``SILENT``; so the largest
value is what the one rank said whose turn it is. Numbers stay below 2^24 where they must be exact, since a callback may
reduce in single precision.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kernelmark.errors import DistributedError, UsageError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["DistributedBenchContext", "Ranks", "leaving_on_error", "slowest"]

SILENT = -1.0
_CHUNK = 3
_LONGEST_TEXT = 1500
_SINGLE_PRECISION = 1e-6

DEFAULT_TIMEOUT_S = 300.0
"""A builder of one rank may compile for minutes while the others wait for it."""


class _Stream(Protocol):
    def synchronize(self) -> object: ...


@dataclass(frozen=True, slots=True)
class DistributedBenchContext:
    """One rank's view of the others.

    The callbacks bound how long they wait: a ``barrier`` or ``max_reduce`` whose peer is gone must raise, since
    nothing can interrupt it. Those of :meth:`from_torch` do.

    Args:
        rank: This process, from 0.
        world_size: How many there are.
        barrier: Returns once every rank has called it.
        max_reduce: Takes one number and returns the largest over all ranks.
        stream: The stream on which launches are timed. A launch that uses others makes it wait for them before
            it returns.
        device: Name of the device, such as ``cuda:1``; the stream's own, or the current one, without it.
        leave: Told, with the reason, when this rank gives up, so that the others need not wait. What it returns,
            if it is text, is noted with the error.
    """

    rank: int
    world_size: int
    barrier: Callable[[], object]
    max_reduce: Callable[[float], float]
    stream: _Stream
    device: str | None = None
    leave: Callable[[str], object] | None = None

    def __post_init__(self) -> None:
        for name in ("rank", "world_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise UsageError(f"{name}={value!r}: give a whole number")
        if self.world_size < 1:
            raise UsageError(f"world_size={self.world_size}: give the number of ranks, at least 1")
        if not 0 <= self.rank < self.world_size:
            raise UsageError(
                f"rank={self.rank} with world_size={self.world_size}: ranks go from 0 to {self.world_size - 1}"
            )
        for name in ("barrier", "max_reduce"):
            if not callable(getattr(self, name)):
                raise UsageError(f"{name}={getattr(self, name)!r}: give a callable")
        if self.leave is not None and not callable(self.leave):
            raise UsageError(f"leave={self.leave!r}: give None or a callable that takes the reason")
        if not callable(getattr(self.stream, "synchronize", None)):
            raise UsageError(
                f"stream={self.stream!r} has no synchronize(): give the stream that launches are timed on, such as"
                " torch.cuda.current_stream()"
            )
        if self.device is not None and not isinstance(self.device, str):
            raise UsageError(f"device={self.device!r}: give None or a name such as 'cuda:1'")

    @classmethod
    def from_torch(
        cls,
        group: ProcessGroup | None = None,
        *,
        device: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> DistributedBenchContext:
        """Connect the ranks of a torch process group; every rank of it calls this.

        Args:
            group: The ranks; the default group without it.
            device: Where this rank's launches run; without it the current CUDA device where the group connects
                GPUs, else the CPU.
            timeout_s: The longest that one rank may keep the others waiting, for its builders too. A rank that
                dies or hangs is found out, and named, within about twice this. On GPUs the devices of the others,
                which wait for it in a kernel, are freed by aborting NCCL in their processes.

        Raises:
            UsageError: there is no process group, or a value is none.
            DistributedError: the ranks, or their devices, cannot meet.
        """
        if (
            isinstance(timeout_s, bool)
            or not isinstance(timeout_s, int | float)
            or not 0 < timeout_s < math.inf
        ):
            raise UsageError(f"timeout_s={timeout_s!r}: give a number of seconds above 0")
        from kernelmark.launches.torch_ranks import TorchRanks  # loads torch

        ranks = TorchRanks(group, device, timeout_s)
        return cls(
            rank=ranks.rank,
            world_size=ranks.world_size,
            barrier=ranks.barrier,
            max_reduce=ranks.max_reduce,
            stream=ranks.stream,
            device=ranks.device,
            leave=ranks.leave,
        )


@contextmanager
def leaving_on_error(context: Any) -> Iterator[None]:
    """Tell the others when this rank fails; not when the others are what failed.

    A launch also fails because another rank is gone: NCCL then raises an error of its own. Telling the others finds
    that out, and who it was is the error that says more.
    """
    leave = context.leave if isinstance(context, DistributedBenchContext) else None
    try:
        yield
    except DistributedError:
        raise
    except BaseException as error:
        if leave is not None:
            try:
                told = leave(f"{type(error).__name__}: {error}")
                if told and isinstance(told, str):
                    error.add_note(told)
            except DistributedError as gone:
                gone.measured = getattr(error, "measured", {})
                for note in getattr(error, "__notes__", ()):
                    gone.add_note(note)
                raise gone from error
            except Exception as second:  # noqa: BLE001 - told with the first error, which says more
                error.add_note(f"telling the other ranks failed too: {second!r}")
        raise


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
