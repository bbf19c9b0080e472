"""What a timer is: it collects readings of one pass, then attributes them to samples.

A timer sees a call, a prepare callable and a device. It knows no case, no check and no statistics.
Collecting touches the device; attributing is a pure function over what was collected, so that it can
be tested with recorded activity and no device at all.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from kernelmark.device import Device
from kernelmark.records import KernelShare
from kernelmark.timing.references import Reference, capture, verify

__all__ = ["SYNCHRONOUS_KINDS", "Call", "Samples", "Timer"]

SYNCHRONOUS_KINDS = frozenset({"cpu", "fake"})
"""The device kinds on which a call has done its work when it returns; every other kind has a queue."""

_HOST_CLOCK = capture(time, "perf_counter_ns")


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
    reads_empty: ClassVar[bool] = True
    """Whether a call that does nothing has a reading; False where the instrument refuses such a call."""
    own_references: ClassVar[tuple[Reference, ...]] = ()
    """What this timer calls besides the host clock, captured when its module was imported."""

    clock: Callable[[], int] = staticmethod(time.perf_counter_ns)
    """The host's clock, for what the loop itself has to time (never a sample, but for the host timer)."""
    notes: tuple[str, ...] = ()
    """What a reading of this timer holds, where a reader of the row must know it; ``open`` fills it in."""
    last_result: object = None
    """What the last call of the last pass returned; ``collect`` leaves it here."""

    @abstractmethod
    def open(self, device: Device) -> None:
        """Take what the instrument needs.

        Raises:
            UnavailableError: this machine lacks it.
            InstrumentConflictError: another profiler holds it.
        """

    def close(self) -> None:  # noqa: B027 - a timer that takes nothing has nothing to give back
        """Give back what ``open`` took, all of it or part; does nothing if it is closed."""

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
        """Run the rounds and return what the instrument recorded, untouched.

        Between the two ends of a reading there is the call and nothing else. What a call returns is kept
        until just before the next ``prepare``: then only one result is alive at a time, and freeing it is
        in no reading. The last one goes to ``last_result``.
        """

    @abstractmethod
    def attribute(self, collected: Any, *, count_copies: bool) -> Samples:
        """Turn what was recorded into samples; pure."""

    def notes_on(self, call: Call) -> tuple[str, ...]:
        """Say what a reader must know of the readings of this call, beside ``notes``; ask before closing."""
        return ()

    def take_result(self) -> object:
        """Return what the last call of the last pass returned, and forget it."""
        result, self.last_result = self.last_result, None
        return result

    def verify_own_references(self) -> None:
        """Check that the functions under the readings are still the ones that were there first.

        Raises:
            TimingError: something that was timed has replaced one.
        """
        verify(_HOST_CLOCK + self.own_references)
