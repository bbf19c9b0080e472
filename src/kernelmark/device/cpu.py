"""The CPU as a device: a call is done when it returns, and its caches are evicted by their size."""

from __future__ import annotations

import gc
import os
from collections.abc import Collection
from pathlib import Path

from kernelmark.device.cpu_caches import cpu_caches
from kernelmark.device.cpu_facts import available_cpus, clock_mhz, cpu_name, cpu_settings
from kernelmark.device.eviction import HostReadFlusher, cpu_eviction_bytes
from kernelmark.device.memory import available_memory, total_memory
from kernelmark.device.settling import Settler
from kernelmark.errors import UnavailableError
from kernelmark.records import DeviceRecord, Telemetry
from kernelmark.units import format_bytes

__all__ = ["CpuDevice"]

# More than this and the buffer pushes out what the call itself works on, or the machine starts to swap.
_LARGEST_SHARE = 4


class CpuDevice:
    """The processors that this process may run on.

    Args:
        root: Where the system's tables begin; another one is for tests.
    """

    kind = "cpu"
    torch_name = "cpu"
    default_timer = "host"

    def __init__(self, *, root: Path = Path("/")) -> None:
        self._root = root
        self._cpus = available_cpus()
        self.caches = cpu_caches(self._cpus, root=root)
        self._settler = Settler(root)
        self._flusher: HostReadFlusher | None = None

    def describe(self) -> DeviceRecord:
        """Give name, threads, affinity, caches, memory, and the settings that change speed."""
        import torch

        details = {
            "caches_from": self.caches.source,
            "eviction": f"reads {format_bytes(cpu_eviction_bytes(self.caches))}",
            "settling": "waits for spinning threads" if self._settler.known else "this system does not tell",
            **cpu_settings(self._cpus[0], self._root),
        }
        return DeviceRecord(
            kind=self.kind,
            name=cpu_name(self._root),
            cores=os.cpu_count(),
            threads=torch.get_num_threads(),
            affinity=available_cpus(),
            memory_bytes=total_memory(),
            cache_bytes=self.caches.by_level,
            last_level_cache_bytes=self.caches.last_level,
            capability=torch.backends.cpu.get_cpu_capability(),
            details=details,
        )

    def synchronize(self) -> None:
        """Do nothing: a call has done its work when it returns."""

    def settle(self, familiar: Collection[str] = ()) -> None:
        """Wait until no other thread of this process computes, unless only familiar ones do; 20 ms at most."""
        self._settler.expect(familiar)
        self._settler()

    def working(self) -> frozenset[str]:
        """Give the other threads of this process that compute now."""
        return self._settler.working()

    def flusher(self) -> HostReadFlusher:
        """Give the flusher, which reads on all CPUs that this process may use, after other threads have settled.

        Raises:
            UnavailableError: the buffer would take more than a quarter of the memory that is left.
        """
        if self._flusher is None:
            size, free = cpu_eviction_bytes(self.caches), available_memory(self._root)
            if free is not None and size > free // _LARGEST_SHARE:
                raise UnavailableError(
                    f"evicting the caches of this CPU takes a buffer of {format_bytes(size)}, more than a"
                    f" quarter of the {format_bytes(free)} of memory that is left; free some, or time with a"
                    " warm cache"
                )
            self._flusher = HostReadFlusher(
                size, self._cpus, before=self._settler, on_thread=self._settler.ignore
            )
        return self._flusher

    def telemetry(self) -> Telemetry:
        """Read the clock, the load average and this process's threads; other processes are not counted."""
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        return Telemetry(
            clock_mhz=clock_mhz(self._cpus, self._root),
            load_average=load,
            busy_threads=self._settler.computing(),
        )

    def release_memory(self) -> None:
        """Collect what is unreachable; torch caches no CPU memory."""
        gc.collect()
