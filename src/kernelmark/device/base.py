"""What a device is, to the rest of kernelmark: something to wait for, to cool, and to describe."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from kernelmark.records import DeviceRecord, Telemetry

__all__ = ["Device", "Flusher"]


class Flusher(Protocol):
    """Evicts the caches with clean lines: what it leaves behind needs no write-back.

    A flush that leaves dirty lines makes the next call pay for them: +27 % on a 4 MB add, +2.9 % on a
    4096² softmax, measured on an H200.
    """

    size_bytes: int

    def __call__(self) -> None:
        """Evict; on an asynchronous device, queue the eviction on the current stream."""
        ...


@runtime_checkable
class Device(Protocol):
    """One device that can run a call."""

    kind: str
    """``cpu``, ``cuda``, another accelerator's type in torch, or ``fake``."""
    torch_name: str
    """What ``torch.device`` takes: ``cpu``, ``cuda:0``, ..."""
    default_timer: str
    """Name of the timer that is used where none is asked for."""

    def describe(self) -> DeviceRecord:
        """Say what this device is, as far as it can be told."""
        ...

    def synchronize(self) -> None:
        """Wait for everything queued; raises the device's own error if something failed."""
        ...

    def settle(self, familiar: Collection[str] = ()) -> None:
        """Wait until nothing that ran before still takes processors from the next call; never long.

        Threads that are ``familiar``, as :meth:`working` named them after the same call, are the call's own.
        """
        ...

    def working(self) -> frozenset[str]:
        """Name the threads of this process, other than the caller, that work now, as after a call its workers do."""
        ...

    def flusher(self) -> Flusher:
        """Give the flusher for this device; its buffer is allocated once and kept."""
        ...

    def telemetry(self) -> Telemetry:
        """Read the device's state now; cheap enough to call between passes."""
        ...

    def release_memory(self) -> None:
        """Give cached memory back, as between cases."""
        ...


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """The data caches that a process can reach, in bytes."""

    by_level: dict[str, int]
    """One cache of each level, such as ``{"L1d": 49152, "L2": 2097152, "L3": 503316480}``."""
    last_level: int
    """All caches of the last level together; a processor of several dies has several of them."""
    private_total: int = 0
    """All caches nearer to the cores, together."""
    source: str = ""
    """Where the sizes come from, in words."""
