"""Hands out the turn to time: one worker has it, and all others that share these turns are held meanwhile.

A turn ends when its worker says so, when it dies, and when it is ended.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kernelmark.isolation.processes import Held, Leader, Stopwatch, hold, paused

__all__ = ["Turns"]


class Turns:
    """Who may time now, among the workers that were given these turns; several threads may use it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._gate = threading.Condition()
        self._starting, self._held_now = 0, False
        self._running: dict[Leader, Stopwatch] = {}

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Start a worker inside the ``with`` block, and :meth:`enter` it; while others are held, only afterwards."""
        with self._gate:
            self._gate.wait_for(lambda: not self._held_now)
            self._starting += 1
        try:
            yield
        finally:
            with self._gate:
                self._starting -= 1
                self._gate.notify_all()

    def enter(self, leader: Leader, clock: Stopwatch) -> None:
        """Let a worker be held from now on, and its clock stand still then."""
        with self._gate:
            self._running[leader] = clock

    def leave(self, leader: Leader) -> None:
        """Forget a worker."""
        with self._gate:
            self._running.pop(leader, None)

    @contextmanager
    def turn(self, leader: Leader) -> Iterator[str]:
        """Hold all workers but this one inside the ``with`` block, and start none; gives a note that says so."""
        with self._turn:
            with self._gate:
                self._gate.wait_for(lambda: not self._starting)
                self._held_now = True
                others = [(each, clock) for each, clock in self._running.items() if each != leader]
            try:
                with paused([clock for _, clock in others]):
                    held = hold(each for each, _ in others)
                    try:
                        yield _note(held)
                    finally:
                        held.release()
            finally:
                with self._gate:
                    self._held_now = False
                    self._gate.notify_all()


def _note(held: Held) -> str:
    count = len(held.leaders)
    if not count:
        return ""
    others = "another kernel" if count == 1 else f"{count} other kernels"
    unheld = f"; {len(held.going_on)} of them went on all the same" if held.going_on else ""
    return f"the processes of {others} were held while this was timed{unheld}"
