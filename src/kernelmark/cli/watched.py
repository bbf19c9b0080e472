"""Runs a command's work in a child process, so that a compiler that never ends can be ended, and its crash be told.

A pass of MLIR's holds the interpreter while it runs: no other thread of the process could end it, and neither could
Ctrl-C. This module knows processes and exit codes, and nothing of what is compiled.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import click

from kernelmark.errors import CrashedError, UnavailableError
from kernelmark.holding import members
from kernelmark.process import death_in_words

__all__ = ["COMPILED", "can_be_watched", "run_watched"]

COMPILED = "compiled"
"""What the work says when there is nothing left to compile; from then on it has no limit."""

Tell = Callable[[str], None]

_GRACE_S = 3.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def can_be_watched() -> bool:
    """Whether a child of this process would be whole: it has no threads but this one, and torch has started none."""
    return hasattr(os, "fork") and "torch" not in sys.modules and threading.active_count() == 1


def run_watched(work: Callable[[Tell], None], *, limit_s: float, hint: str) -> None:
    """Call ``work`` in a child that is ended where it has not said :data:`COMPILED` within ``limit_s``.

    What the child prints is printed as if it were printed here, and so are its errors; its exit code becomes that of
    this process. In the child this returns, or raises what ``work`` raises.

    Args:
        work: Gets a function that it calls with what it is about to do.
        limit_s: Seconds.
        hint: What a user can do where that is not enough.

    Raises:
        CrashedError: it did not end in time, or its process died; with what it was about to do.
        click.exceptions.Exit: it ended by itself, with this code.
        UnavailableError: this process has started threads, which a child would not have.
    """
    if not can_be_watched():
        raise UnavailableError(
            "compiling can be given a limit only where torch has not been loaded: run it as a command of its own,"
            " or without --timeout"
        )
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)  # so that what it starts can be ended with it
        _die_with(parent)
        os.close(reading)
        work(lambda doing: _write(writing, doing))
        return
    os.close(writing)
    with suppress(OSError):  # in both processes, since either may be first
        os.setpgid(child, child)
    try:
        code = _wait(child, reading, limit_s, hint)
    except KeyboardInterrupt:
        if (code := _ended_by(signal.SIGINT, child)) is None:
            _kill(child)
            raise
    except BaseException:
        _kill(child)
        raise
    finally:
        os.close(reading)
    raise click.exceptions.Exit(code)


def _write(pipe: int, doing: str) -> None:
    with suppress(BrokenPipeError):  # whoever watched is gone
        os.write(pipe, (doing.replace("\n", " ") + "\n").encode())


def _wait(child: int, reading: int, limit_s: float, hint: str) -> int:
    """Wait for the child's end, and give its exit code."""
    deadline = time.monotonic() + limit_s
    doing, rest = "starting", b""
    while True:
        left = None if doing == COMPILED else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise CrashedError(
                f"{doing}: compiling has not ended within {limit_s:g} s, and was ended; {hint}"
            )
        if not select.select([reading], [], [], left)[0]:
            continue
        data = os.read(reading, 4096)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        doing = lines[-1].decode(errors="replace") if lines else doing
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        at = "while it ran" if doing == COMPILED else f"at {doing}"
        raise CrashedError(f"{death_in_words(code)} ({at})")
    return code


def _ended_by(number: int, child: int) -> int | None:
    """Send a signal to the child's group; give its exit code if it ends soon in its own way."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, number)
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else None
        time.sleep(0.02)
    return None


def _kill(child: int) -> None:
    """End the child and whatever it started."""
    for each in {child, *members(child)}:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)
    with suppress(ChildProcessError):  # it has been waited for
        os.waitpid(child, 0)


def _die_with(parent: int) -> None:
    """Let this process be killed when its parent is, where the system can do that."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it was killed before
        os._exit(1)  # house: there is nobody left to tell
