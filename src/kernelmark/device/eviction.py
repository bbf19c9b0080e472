"""How much must be read for nothing older to be left in a cache, and the buffer that is read.

Eviction is by reading, never by writing: what a read leaves in a cache needs no write-back, while dirty
lines are paid for by the next call. Measured on an H200: a flush that writes zeros adds 27 % to a 4 MB add
and 2.9 % to a 4096² softmax.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from kernelmark.device.base import CacheSizes

__all__ = ["HostReadFlusher", "ReadFlusher", "cpu_eviction_bytes", "gpu_eviction_bytes"]

DOUBLE_UP_TO = 256 << 20
"""A last level up to half of this is evicted by reading twice its size.

Larger ones are read once: 480 MiB, as one virtual machine reports of a server's cache, cost 20 ms a round on
two cores. There a probe reads 13 times as long as warm after 64 MiB, 24 times after 256 MiB, 33 times after
480 MiB, and 39 times after 960 MiB at twice the cost.
"""

GPU_MEMORY_SIDE_CACHE = 512 << 20
"""Read at least on an AMD GPU: torch tells nothing of the 256 MiB in front of an MI300X's memory."""

GPU_UNKNOWN = 512 << 20
"""Read on an accelerator that tells no cache size; more than twice any L2 that is sold."""

# One launch, no scratch memory and no second pass, since each row is summed by itself: 35 µs for 120 MiB on
# an H200, 3.6 TB/s.
_ROWS = 1024

_NEVER_THERE = 0xFF
_PAGE = 4096


def cpu_eviction_bytes(caches: CacheSizes) -> int:
    """Say how much a CPU has to read: all caches once, and a last level of ordinary size twice."""
    return max(caches.last_level + caches.private_total, min(2 * caches.last_level, DOUBLE_UP_TO))


def gpu_eviction_bytes(l2: int, *, hip: bool = False) -> int:
    """Say how much a GPU has to read: twice its L2, and past a cache that it does not tell of."""
    if not l2:
        return GPU_UNKNOWN
    return max(2 * l2, GPU_MEMORY_SIDE_CACHE) if hip else 2 * l2


class ReadFlusher:
    """Reads a buffer of at least ``size_bytes`` from end to end.

    Args:
        torch_name: Where the buffer lies.
        size_bytes: Rounded up to whole rows.
        before: What has to happen before the reading, such as a reset of lines that resist eviction.
    """

    def __init__(
        self, torch_name: str, size_bytes: int, *, before: Callable[[], object] | None = None
    ) -> None:
        import torch

        columns = -(-size_bytes // (8 * _ROWS))
        self.size_bytes = 8 * _ROWS * columns
        self._before = before
        self._sum = torch.sum
        # Inside torch.inference_mode() the buffer could not be used outside it again.
        with torch.inference_mode(False):
            # Written once, since pages that were never written are all one page of zeros; then only read.
            self._rows = torch.ones((_ROWS, columns), dtype=torch.int64, device=torch_name)
            self._sums = torch.empty(_ROWS, dtype=torch.int64, device=torch_name)

    def __call__(self) -> None:
        """Read all of it; on an asynchronous device, queue that on the current stream."""
        if self._before is not None:
            self._before()
        self._sum(self._rows, 1, out=self._sums)


class HostReadFlusher:
    """Reads a buffer of at least ``size_bytes`` from end to end, a part on each processor, while the caller sleeps.

    Not with torch's threads: libgomp's go on spinning for 7.4 ms, through the call that follows
    (:mod:`kernelmark.device.settling`). These sleep at once, and each is bound to its processor, so that every private
    cache is evicted wherever the system would have put them. The C library's ``memchr`` looks for a byte that is not
    there: 64 MiB in 1.5 ms on two cores of an AMD EPYC, where torch's sum takes 1.0.

    Args:
        size_bytes: Rounded up to whole pages for each processor.
        processors: Their numbers.
        before: What has to happen before the reading.
        on_thread: Told the system's number of each thread that reads.
    """

    def __init__(
        self,
        size_bytes: int,
        processors: Sequence[int],
        *,
        before: Callable[[], object] | None = None,
        on_thread: Callable[[int], object] | None = None,
    ) -> None:
        part = -(-size_bytes // (_PAGE * len(processors))) * _PAGE
        self.size_bytes = part * len(processors)
        # Written once, since pages that were never written are all one page of zeros; then only read.
        self._buffer = ctypes.create_string_buffer(self.size_bytes)
        start = ctypes.addressof(self._buffer)
        ctypes.memset(start, 1, self.size_bytes)
        self._parts = [(start + number * part, _NEVER_THERE, part) for number in range(len(processors))]
        self._processors = tuple(processors)
        self._before = before
        self._on_thread = on_thread
        self._search = _memchr()
        self._readers: list[ThreadPoolExecutor] = []
        self._process = 0

    def __call__(self) -> None:
        """Read all of it."""
        if self._before is not None:
            self._before()
        search = self._search
        for each in [
            reader.submit(search, *part) for reader, part in zip(self._threads(), self._parts, strict=True)
        ]:
            each.result()

    def _threads(self) -> list[ThreadPoolExecutor]:
        """Give the threads; a child made by ``fork`` has none of its parent's, and makes its own."""
        if self._process != os.getpid():
            self._readers = [
                ThreadPoolExecutor(1, "kernelmark-flush", self._begin, (processor,))
                for processor in self._processors
            ]
            self._process = os.getpid()
        return self._readers

    def _begin(self, processor: int) -> None:
        if hasattr(os, "sched_setaffinity"):
            with suppress(OSError):  # taken from this process since; its cache is another's then
                os.sched_setaffinity(0, {processor})
        if self._on_thread is not None:
            self._on_thread(threading.get_native_id())


def _memchr() -> Callable[[int, int, int], object]:
    """Give the C library's ``memchr``; ctypes lets other threads run meanwhile."""
    library = ctypes.cdll.msvcrt if os.name == "nt" else ctypes.CDLL(None)
    search = library.memchr
    search.argtypes, search.restype = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t), ctypes.c_void_p
    return search
