"""Holds processes, so that they take no time on any core, and lets them go on.

It takes the leaders of process groups, and holds what those started too, in whatever group that is now. What the
processes do, and why they are held, is not known here.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Held", "Stopwatch", "hold", "members"]

_STOPPED = "TtZXx"
_PATIENCE_S = 2.0
_PAUSE_S = 0.002
_PROC = Path("/proc")


class Stopwatch:
    """How long something ran, without the times for which it was held; several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = time.monotonic()
        self._ran_s, self._pauses = 0.0, 0

    @property
    def paused(self) -> bool:
        """Whether it stands still."""
        return self._since is None

    @property
    def seconds(self) -> float:
        """What it shows now."""
        with self._lock:
            return self._shown()

    def pause(self) -> None:
        """Stand still; as often as this is called, :meth:`go_on` must be."""
        with self._lock:
            self._pauses += 1
            self._ran_s, self._since = self._shown(), None

    def go_on(self) -> None:
        """Run on, unless somebody else has it stand still."""
        with self._lock:
            self._pauses -= 1
            if not self._pauses:
                self._since = time.monotonic()

    def _shown(self) -> float:
        return self._ran_s + (0.0 if self._since is None else time.monotonic() - self._since)


@dataclass(frozen=True, slots=True)
class Held:
    """Processes that are held."""

    leaders: tuple[int, ...]
    processes: frozenset[int]
    going_on: frozenset[int] = frozenset()
    """Those that had not stopped after two seconds, as where they wait for a disk."""

    def release(self) -> None:
        """Let all of them go on."""
        for leader in self.leaders:
            _signal_group(leader, signal.SIGCONT)
        for process in self.processes:
            _signal(process, signal.SIGCONT)


def hold(leaders: Iterable[int]) -> Held:
    """Stop the groups of ``leaders`` and all that they started; returns when everything has stopped."""
    leaders = tuple(leaders)
    held: set[int] = set()
    until = time.monotonic() + _PATIENCE_S
    while True:
        for leader in leaders:
            _signal_group(leader, signal.SIGSTOP)
        table = _processes()
        found = set().union(*(_members(leader, table) for leader in leaders)) if leaders else set()
        for process in found:
            _signal(process, signal.SIGSTOP)
        held |= found
        # what was started before its parent stopped shows in the next look
        going_on = {process for process in found if table[process].state not in _STOPPED}
        if not going_on or time.monotonic() > until:
            return Held(leaders, frozenset(held), frozenset(going_on))
        time.sleep(_PAUSE_S)


def members(leader: int) -> frozenset[int]:
    """Give the processes of the group of ``leader``, and what they started."""
    return frozenset(_members(leader, _processes()))


@dataclass(frozen=True, slots=True)
class _Process:
    state: str
    parent: int
    group: int


def _members(leader: int, table: dict[int, _Process]) -> set[int]:
    found = {number for number, each in table.items() if each.group == leader}
    while more := {n for n, each in table.items() if each.parent in found and n not in found}:
        found |= more
    return found


def _processes() -> dict[int, _Process]:
    """Look at all processes; none where the system has no ``/proc``, and groups alone are held there."""
    found: dict[int, _Process] = {}
    for entry in os.listdir(_PROC) if _PROC.is_dir() else ():
        if entry.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # the name stands in brackets and may hold anything
                state, parent, group = (_PROC / entry / "stat").read_text().rpartition(")")[2].split()[:3]
                found[int(entry)] = _Process(state, int(parent), int(group))
    return found


def _signal_group(leader: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _signal(process: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)
