"""Waits until no other thread of this process computes, so that every call finds the cores as free as every other.

OpenMP runtimes let idle workers spin. Torch's libgomp lets them spin for 7.4 ms after each parallel region (two cores
of an AMD EPYC, torch 2.13), on the core that another runtime's worker is then woken for: a leaky_relu of 16 MiB on
two threads of LLVM's runtime read 2.08 ms right after a flush by torch, and 1.24 ms after one without. Between two
contestants of one runtime nothing of it shows; between two runtimes it decides who wins.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["LIMIT_S", "Settler"]

LIMIT_S = 0.02
"""How long a thread is waited for. It must be longer than libgomp's 7.4 ms, and is paid once a pass at most."""


class Settler:
    """Waits for the other threads of this process to leave the processors.

    A thread that goes on past the limit is restless: it is not waited for again until :meth:`forget`, so a process
    with a thread that never rests pays the limit once a pass and not once a call.

    Args:
        root: Where the system's tables begin; another one is for tests.
        clock: Returns seconds; another one is for tests.
    """

    def __init__(self, root: Path = Path("/"), *, clock: Callable[[], float] = time.monotonic) -> None:
        self._tasks = os.fspath(root / "proc/self/task")
        self._clock = clock
        self._restless: frozenset[str] = frozenset()
        self.known = os.path.isdir(self._tasks)
        """Whether this system tells what its threads do; where it does not, nothing is waited for."""

    def __call__(self) -> None:
        """Wait, for :data:`LIMIT_S` at most."""
        if not self.known:
            return
        end = None
        while running := self._running() - self._restless:
            now = self._clock()
            end = now + LIMIT_S if end is None else end
            if now >= end:
                self._restless |= running
                return

    def forget(self) -> None:
        """Wait for every thread again."""
        self._restless = frozenset()

    def computing(self) -> int | None:
        """Count the other threads that compute now; ``None`` where the system does not tell."""
        return len(self._running()) if self.known else None

    def _running(self) -> frozenset[str]:
        own = str(threading.get_native_id())
        return frozenset(task for task in os.listdir(self._tasks) if task != own and self._runs(task))

    def _runs(self, task: str) -> bool:
        try:
            with open(f"{self._tasks}/{task}/stat", "rb", buffering=0) as stat:
                text = stat.read(256)
        except OSError:  # it has ended
            return False
        return text.rpartition(b")")[2].split(None, 1)[0] == b"R"
