"""Processes seen from outside: which ones belong together, held, let go on and ended, and a death in words.

What belongs to a leader is found by four signs, since what it started may have left any of them: its process group,
its session, its descent, and a mark in the environment, which is passed on at each start. What the processes do is
not known here.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO

__all__ = [
    "MARK",
    "Death",
    "DeathKind",
    "Held",
    "Leader",
    "Stopwatch",
    "ask_to_end",
    "death_in_words",
    "end_all",
    "hold",
    "importing_the_same",
    "members",
    "new_mark",
    "paused",
    "tail_of",
]

MARK = "KERNELMARK_WORKER"
"""The environment variable that holds a worker's mark; one that is started inside a worker begins with that one's."""

_STOPPED = "TtZXx"
_GONE = "ZXx"
_PATIENCE_S = 2.0
_PAUSE_S = 0.002
_PROC = Path("/proc")
_TAIL_BYTES = 8192
_TAIL_LINES = 25


# --- how one died ------------------------------------------------------------------------------------


class DeathKind(StrEnum):
    """What ended a process before its work was done."""

    EXITED = "exited"
    """It ended itself, with a status."""
    SIGNALLED = "signalled"
    """It died of a signal that was not sent from here."""
    TIME = "time"
    """It was ended here: its time was over."""
    OUTPUT = "output"
    """It was ended here: it wrote too much."""
    CHANNEL = "channel"
    """It was ended here: what it said on its channel was no message."""


@dataclass(frozen=True, slots=True)
class Death:
    """How a process died whose work was not done."""

    kind: DeathKind
    code: int | None = None
    """Its exit status, or minus the number of its signal; ``None`` for one that was ended here."""
    detail: str = ""
    """What it exceeded, in words; of one that was ended here."""

    @classmethod
    def of_code(cls, code: int) -> Death:
        """Make it from an exit status, or minus a signal's number."""
        return cls(DeathKind.SIGNALLED if code < 0 else DeathKind.EXITED, code)

    @property
    def timed_out(self) -> bool:
        """Whether its time was over."""
        return self.kind is DeathKind.TIME

    @property
    def killed(self) -> bool:
        """Whether somebody else killed it, as the system does where memory runs out."""
        return self.code == -signal.SIGKILL

    def __str__(self) -> str:
        return self.detail if self.code is None else death_in_words(self.code)


def death_in_words(code: int) -> str:
    """Say what an exit status means for a process whose work was not done."""
    if code == 0:
        return "its process ended, with status 0, before its work was done"
    if code > 0:
        return f"its process ended with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = {
        "SIGSEGV": ": it used memory that is not its own",
        "SIGABRT": ": it aborted itself, as a failed assertion does",
        "SIGKILL": ": killed from outside, as the system does when memory runs out",
        "SIGFPE": ": an impossible division of integers, perhaps by zero",
        "SIGILL": ": an instruction that this processor does not have",
    }.get(name, "")
    return f"its process died of {name}{hint}"


# --- clocks that can stand still ----------------------------------------------------------------------


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


@contextmanager
def paused(clocks: Sequence[Stopwatch]) -> Iterator[None]:
    """Have clocks stand still inside the ``with`` block."""
    for clock in clocks:
        clock.pause()
    try:
        yield
    finally:
        for clock in clocks:
            clock.go_on()


# --- what belongs together ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leader:
    """A process that leads a group, and the mark that it passes on; blank for one without."""

    pid: int
    mark: str = ""


def new_mark() -> str:
    """Give a mark of its own, which begins with that of the worker that this process is or belongs to."""
    return f"{os.environ.get(MARK, '')}{secrets.token_hex(8)}."


def members(leader: Leader) -> frozenset[int]:
    """Give the live processes that belong to ``leader``, itself among them; not this process."""
    table = _processes()
    return frozenset(each for each in _members(leader, table) if table[each].state not in _GONE)


@dataclass(frozen=True, slots=True)
class _Process:
    state: str
    parent: int
    group: int
    session: int


def _members(leader: Leader, table: dict[int, _Process]) -> set[int]:
    found = {
        number
        for number, each in table.items()
        if leader.pid in (number, each.group, each.session)
        or (leader.mark and _is_marked(number, leader.mark))
    }
    while more := {n for n, each in table.items() if each.parent in found and n not in found}:
        found |= more
    return found - {os.getpid()}


def _is_marked(process: int, mark: str) -> bool:
    with suppress(OSError):  # another user's, or gone
        return f"{MARK}={mark}".encode() in (_PROC / str(process) / "environ").read_bytes()
    return False


def _processes() -> dict[int, _Process]:
    """Look at all processes; none where the system has no ``/proc``, and groups alone are found there."""
    found: dict[int, _Process] = {}
    for entry in os.listdir(_PROC) if _PROC.is_dir() else ():
        if entry.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # the name stands in brackets and may hold anything
                state, *rest = (_PROC / entry / "stat").read_text().rpartition(")")[2].split()[:4]
                found[int(entry)] = _Process(state, *map(int, rest))
    return found


# --- holding and ending -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Held:
    """Processes that are held."""

    leaders: tuple[Leader, ...]
    processes: frozenset[int]
    going_on: frozenset[int] = frozenset()
    """Those that had not stopped after two seconds, as where they wait for a disk."""

    def release(self) -> None:
        """Let all of them go on."""
        for leader in self.leaders:
            _signal_group(leader, signal.SIGCONT)
        for process in self.processes:
            _signal(process, signal.SIGCONT)


def hold(leaders: Iterable[Leader]) -> Held:
    """Stop ``leaders`` and all that belongs to them; returns when everything has stopped."""
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


def end_all(leader: Leader, known: Iterable[int] = ()) -> None:
    """Kill ``leader`` and all that belongs to it, wherever it went.

    Args:
        leader: It may have died before.
        known: What belonged to it at an earlier look, when it lived.
    """
    left = set(known)
    until = time.monotonic() + _PATIENCE_S
    while True:
        _signal_group(leader, signal.SIGKILL)
        for process in left:
            _signal(process, signal.SIGKILL)
        # what was started between a look and the signal shows in the next look
        table = _processes()
        live = {number for number, each in table.items() if each.state not in _GONE}
        left = live & (left | _members(leader, table))
        if not left or time.monotonic() > until:
            return
        time.sleep(_PAUSE_S)


def ask_to_end(leader: Leader) -> None:
    """Ask a group to end by itself; also one that is held."""
    for number in (signal.SIGTERM, signal.SIGCONT):
        _signal_group(leader, number)


def _signal_group(leader: Leader, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader.pid, number)


def _signal(process: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


# --- what goes in and out -----------------------------------------------------------------------------


def importing_the_same() -> dict[str, str]:
    """Give the environment variable with which another Python can import what this process can."""
    return {"PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}


def tail_of(log: IO[bytes]) -> str:
    """Give the last lines of a file that is open for reading."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
    return "\n".join(log.read().decode(errors="replace").strip().splitlines()[-_TAIL_LINES:])
