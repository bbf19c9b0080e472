"""Processes seen from outside: which belong together, held and ended; how one died; a clock that can stand still.

What belongs to a leader is found by four signs, since what it started may have left any of them: its process group,
its session, its descent, and a mark in the environment, which is passed on at each start.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "MARK",
    "Death",
    "Leader",
    "Stopwatch",
    "ask_to_end",
    "end_all",
    "held",
    "importing_the_same",
    "members",
    "new_mark",
]

MARK = "KERNELMARK_WORKER"
"""The environment variable that holds a worker's mark; one that is started inside a worker begins with that one's."""

_STOPPED = "TtZXx"
_GONE = "ZXx"
_PATIENCE_S = 2.0
_PAUSE_S = 0.002
_PROC = Path("/proc")


# --- how one died ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Death:
    """How a process died whose work was not done."""

    code: int | None = None
    """Its exit status, or minus the number of its signal; ``None`` for one that was ended here."""
    detail: str = ""
    """What it exceeded, in words; of one that was ended here."""
    timed_out: bool = False
    """Whether its time was over."""

    @property
    def killed(self) -> bool:
        """Whether somebody else killed it, as the system does where memory runs out."""
        return self.code == -signal.SIGKILL

    def __str__(self) -> str:
        code = self.code
        if code is None:
            return self.detail
        if code == 0:
            return "its process ended, with status 0, before its work was done"
        if code > 0:
            return f"its process ended with status {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"its process died of {name}{_HINTS.get(name, '')}"


_HINTS = {
    "SIGSEGV": ": it used memory that is not its own",
    "SIGABRT": ": it aborted itself, as a failed assertion does",
    "SIGKILL": ": killed from outside, as the system does when memory runs out",
    "SIGFPE": ": an impossible division of integers, perhaps by zero",
    "SIGILL": ": an instruction that this processor does not have",
}


# --- a clock that can stand still ---------------------------------------------------------------------


class Stopwatch:
    """How long something ran, without the times for which it was held; several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = time.monotonic()
        self._ran_s, self._holders = 0.0, 0

    @property
    def paused(self) -> bool:
        """Whether it stands still."""
        return self._since is None

    @property
    def seconds(self) -> float:
        """What it shows now."""
        with self._lock:
            return self._ran_s + (0.0 if self._since is None else time.monotonic() - self._since)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Have it stand still inside the ``with`` block; several may be open at once."""
        shown = self.seconds
        with self._lock:
            if self._since is not None:
                self._ran_s, self._since = shown, None
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if not self._holders:
                    self._since = time.monotonic()


# --- what belongs together ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leader:
    """A process that leads a group, and the mark that it passes on."""

    pid: int
    mark: str


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
        if leader.pid in (number, each.group, each.session) or _is_marked(number, leader.mark)
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


@contextmanager
def held(leaders: Iterable[Leader]) -> Iterator[int]:
    """Stop ``leaders`` and all that belongs to them inside the ``with`` block.

    Gives, when everything has stopped, how many had not after two seconds, as where they wait for a disk.
    """
    leaders = tuple(leaders)
    stopped: set[int] = set()
    until = time.monotonic() + _PATIENCE_S
    try:
        while True:
            _signal_groups(leaders, signal.SIGSTOP)
            table = _processes()
            found = {each for leader in leaders for each in _members(leader, table)}
            _signal(found, signal.SIGSTOP)
            stopped |= found
            # what was started before its parent stopped shows in the next look
            going_on = sum(table[process].state not in _STOPPED for process in found)
            if not going_on or time.monotonic() > until:
                break
            time.sleep(_PAUSE_S)
        yield going_on
    finally:
        _signal_groups(leaders, signal.SIGCONT)
        _signal(stopped, signal.SIGCONT)


def end_all(leader: Leader, known: Iterable[int] = ()) -> None:
    """Kill ``leader`` and all that belongs to it, wherever it went.

    Args:
        leader: It may have died before.
        known: What belonged to it at an earlier look, when it lived.
    """
    left = set(known)
    until = time.monotonic() + _PATIENCE_S
    while True:
        _signal_groups([leader], signal.SIGKILL)
        _signal(left, signal.SIGKILL)
        # what was started between a look and the signal shows in the next look
        table = _processes()
        live = {number for number, each in table.items() if each.state not in _GONE}
        left = live & (left | _members(leader, table))
        if not left or time.monotonic() > until:
            return
        time.sleep(_PAUSE_S)


def ask_to_end(leader: Leader) -> None:
    """Ask a group to end by itself; also one that is held."""
    _signal_groups([leader], signal.SIGTERM)
    _signal_groups([leader], signal.SIGCONT)


def _signal_groups(leaders: Iterable[Leader], number: int) -> None:
    for leader in leaders:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader.pid, number)


def _signal(processes: Iterable[int], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def importing_the_same() -> dict[str, str]:
    """Give the environment variable with which another Python can import what this process can."""
    return {"PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
