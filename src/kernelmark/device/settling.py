"""Waits until no other thread of this process computes, and stands clear of those that are to be woken.

OpenMP runtimes let idle workers spin. Torch's libgomp lets them spin for 7.4 ms after each parallel region (two cores
of an AMD EPYC, torch 2.13), on the core that another runtime's worker is then woken for. Linux wakes a thread where it
last ran, or next to the thread that wakes it, and looks for an idle core only where few are busy: once a worker has
been woken on the caller's own core it stays there, for dozens of calls, and each takes two to three times as long.
Between two contestants of one runtime nothing of it shows; between two runtimes it decides who wins
(``studies/spinning_workers.py``).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

__all__ = ["LIMIT_S", "Settler"]

LIMIT_S = 0.02
"""How long a thread is waited for. It must be longer than libgomp's 7.4 ms, and is paid once a pass at most."""


class Settler:
    """Waits for the other threads of this process to leave the processors.

    A thread that goes on past the limit is restless: it is not waited for again until :meth:`expect`, so a process
    with a thread that never rests pays the limit once a pass and not once a call.

    Args:
        root: Where the system's tables begin; another one is for tests.
        clock: Returns seconds; another one is for tests.
    """

    def __init__(self, root: Path = Path("/"), *, clock: Callable[[], float] = time.monotonic) -> None:
        self._tasks = os.fspath(root / "proc/self/task")
        self._clock = clock
        self._restless: frozenset[str] = frozenset()
        self._familiar: frozenset[str] = frozenset()
        self._ignored: set[str] = set()
        self._ran_ns: dict[str, int] = {}
        self.known = os.path.isdir(self._tasks)
        """Whether this system tells what its threads do; where it does not, nothing is waited for."""

    def __call__(self) -> None:
        """Wait, for :data:`LIMIT_S` at most; then leave the processor that a thread which has just worked wakes on.

        Where only familiar threads compute there is nothing to wait for, and none to wake.
        """
        if not self.known:
            return
        running = self._running() - self._restless
        if running and running <= self._familiar:
            return
        self._wait()
        self._stand_clear()

    def expect(self, familiar: Collection[str] = ()) -> None:
        """Let these threads go on computing from now on, and wait for every other one again.

        Args:
            familiar: The workers of the calls that follow. To let them sleep and wake them again made warm readings
                so uneven that a slowdown of 2 % was found in 141 of 200 comparisons rather than in 193, and a cold
                softmax took 2.2 s a comparison, most of it waiting for its own workers.
        """
        self._familiar, self._restless = frozenset(familiar), frozenset()

    def ignore(self, thread: int) -> None:
        """Do not stand clear of this thread: it has no part in any call."""
        self._ignored.add(str(thread))

    def computing(self) -> int | None:
        """Count the other threads that compute now and are not expected to; ``None`` where the system does not tell."""
        return len(self._running() - self._familiar) if self.known else None

    def working(self) -> frozenset[str]:
        """Give the other threads that compute now; none where the system does not tell."""
        return self._running() if self.known else frozenset()

    def _wait(self) -> None:
        end = None
        while running := self._running() - self._restless - self._familiar:
            now = self._clock()
            end = now + LIMIT_S if end is None else end
            if now >= end:
                self._restless |= running
                return

    def _stand_clear(self) -> None:
        """Move the calling thread to a processor on which no thread last ran that has worked since the last time."""
        worked = set()
        for task in self._others():
            ran_ns = _first_number(f"{self._tasks}/{task}/schedstat")
            if self._ran_ns.get(task) != ran_ns and task not in self._ignored:
                worked.add(self._processor(task))
            self._ran_ns[task] = ran_ns
        if self._processor(_own()) not in worked or not hasattr(os, "sched_setaffinity"):
            return
        allowed = os.sched_getaffinity(0)
        for free in sorted(allowed - worked)[:1]:
            os.sched_setaffinity(0, {free})
            os.sched_setaffinity(0, allowed)

    def _running(self) -> frozenset[str]:
        return frozenset(task for task in self._others() if self._fields(task)[0] == "R")

    def _others(self) -> list[str]:
        own = _own()
        return [task for task in os.listdir(self._tasks) if task != own]

    def _processor(self, task: str) -> int:
        return int(self._fields(task)[_PROCESSOR])

    def _fields(self, task: str) -> list[str]:
        """Give what the system tells of a thread, from its state on; a thread that has ended is asleep on none."""
        text = _text(f"{self._tasks}/{task}/stat")
        return text.rpartition(")")[2].split() or _ENDED


_PROCESSOR = 36
"""Place of the processor that a thread last ran on, counted from its state (proc_pid_stat(5), field 39)."""
_ENDED = ["X", *["-1"] * _PROCESSOR]


def _own() -> str:
    return str(threading.get_native_id())


def _text(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(1024).decode("ascii", "replace")
    except OSError:  # it has ended
        return ""


def _first_number(path: str) -> int:
    """Give the nanoseconds that a thread has computed for, the first number of its schedstat."""
    return int((_text(path).split() or ["0"])[0])
