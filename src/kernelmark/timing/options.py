"""The options of one comparison that every implementation in it shares."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelmark.errors import UsageError
from kernelmark.records import Cache
from kernelmark.timing.budget import Budget

__all__ = ["TimingOptions"]


@dataclass(frozen=True, slots=True)
class TimingOptions:
    """How samples are taken, the same for every implementation of a comparison.

    Args:
        budget: Times and counts.
        cache: ``cold`` flushes the caches before every call; ``warm`` does not. Text is accepted.
        count_copies: Whether device-to-device copies inside the call are part of its busy time.
    """

    budget: Budget = field(default_factory=Budget)
    cache: Cache = Cache.COLD
    count_copies: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.budget, Budget):
            raise UsageError(f"budget={self.budget!r}: give a kernelmark.timing.Budget")
        try:
            object.__setattr__(self, "cache", Cache(self.cache))
        except ValueError:
            raise UsageError(
                f"cache={self.cache!r} is unknown: give {' or '.join(repr(each.value) for each in Cache)}"
            ) from None
        if not isinstance(self.count_copies, bool):
            raise UsageError(f"count_copies={self.count_copies!r}: give True or False")
