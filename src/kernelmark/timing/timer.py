"""What a timer is: it collects readings of one pass, then attributes them to samples.

A timer sees a call, a prepare callable and a device. It knows no case, no check and no statistics.
Collecting touches the device; attributing is a pure function over what was collected, so that it can
be tested with recorded activity and no device at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from kernelmark.device import Device
from kernelmark.records import KernelShare

__all__ = ["Call", "Samples", "Timer"]


@dataclass(frozen=True, slots=True)
class Call:
    """One thing to time: ``run(*args)``, after ``reset()`` where there is one."""

    run: Callable[..., object]
    args: tuple[Any, ...] = ()
    reset: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """One pass, attributed: entry ``i`` of each column is sample ``i``; times in nanoseconds."""

    latency_ns: tuple[int | float, ...]
    device_busy_ns: tuple[int | float, ...]
    n_kernels: tuple[int, ...] | None = None
    n_copies: tuple[int, ...] | None = None
    n_memsets: tuple[int, ...] | None = None
    uncounted_copy_ns: tuple[int | float, ...] | None = None
    kernels: tuple[KernelShare, ...] = ()
    retries: int = 0


class Timer(ABC):
    """One way of reading how long a call took.

    ``open`` before the first pass and ``close`` after the last one, also after an error; ``sample`` is one
    pass. Subclasses fill in the hooks and never override ``sample``.
    """

    name: ClassVar[str]
    tells_gap: ClassVar[bool] = False
    """Whether busy time and latency are separate readings."""

    @abstractmethod
    def open(self, device: Device) -> None:
        """Take what the instrument needs.

        Raises:
            UnavailableError: this machine lacks it.
            InstrumentConflictError: another profiler holds it.
        """

    def close(self) -> None:
        """Give back what ``open`` took; does nothing if it is closed."""

    def sample(
        self, call: Call, prepare: Callable[[], object], count: int, *, count_copies: bool = False
    ) -> Samples:
        """Read ``count`` rounds of ``prepare()`` then ``call.run(*call.args)``.

        ``prepare`` does the reset and the flush; nothing it does is in the reading.

        Raises:
            TimingError: the reading cannot vouch for itself.
            Exception: whatever the call raises, unchanged.
        """
        return self.attribute(self.collect(call, prepare, count), count_copies=count_copies)

    @abstractmethod
    def collect(self, call: Call, prepare: Callable[[], object], count: int) -> Any:
        """Run the rounds and return what the instrument recorded, untouched."""

    @abstractmethod
    def attribute(self, collected: Any, *, count_copies: bool) -> Samples:
        """Turn what was recorded into samples; pure."""
