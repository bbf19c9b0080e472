"""A child process: a group of its own, a time limit, its output kept, its death in words.

Knows nothing of what the child does, nor of how its answer comes back.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Ended", "death_in_words", "importing_the_same", "kill_group", "run_child", "tail_of"]

_TERM_GRACE_S = 3.0
_TAIL_BYTES = 8192
_TAIL_LINES = 25


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended, seen from outside."""

    death: str
    """What went wrong, in words; blank for one that ended in order."""
    output: str
    """The last lines that it wrote to stdout and stderr."""
    wall_s: float
    code: int | None = None
    """Its exit status, or minus the number of the signal that it died of; ``None`` for one that was ended here."""


def run_child(
    command: Sequence[str | Path], *, log: Path, limit_s: float, env: Mapping[str, str] | None = None
) -> Ended:
    """Run ``command`` and wait for its end, no longer than ``limit_s``; what it writes goes to ``log``.

    Whatever it started is gone when this returns, also after an interrupt.

    Raises:
        OSError: it could not be started.
    """
    begin = time.monotonic()
    code: int | None = None
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=None if env is None else dict(env),
            start_new_session=True,
        )
        try:
            code = process.wait(limit_s)
            death = "" if code == 0 else death_in_words(code)
        except subprocess.TimeoutExpired:
            death = f"it did not end within {limit_s:g} s"
        finally:
            kill_group(process)
    return Ended(death, tail_of(log), time.monotonic() - begin, code)


def importing_the_same() -> dict[str, str]:
    """Give the environment in which a child can import what this process can."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return {**os.environ, "PYTHONPATH": path}


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


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the whole group of a child that leads one: what it started may outlive it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        except PermissionError:
            process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_TERM_GRACE_S)
    process.wait()


def tail_of(log: Path) -> str:
    """Give the last lines of ``log``."""
    with open(log, "rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - _TAIL_BYTES))
        text = stream.read().decode(errors="replace")
    return "\n".join(text.strip().splitlines()[-_TAIL_LINES:])
