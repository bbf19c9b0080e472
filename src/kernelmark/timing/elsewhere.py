"""Calls a function in a process of its own, for an instrument that cannot follow another one in this process.

It knows neither what the function does nor which profilers there are: it gets the conflict, and gives it on.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kernelmark.device import Device
from kernelmark.errors import InstrumentConflictError, KernelmarkError, TimingError
from kernelmark.files import draft
from kernelmark.process import death_in_words, importing_the_same
from kernelmark.timing.sending import receive, send
from kernelmark.timing.timer import opened
from kernelmark.timing.timers import TIMERS, open_timer

__all__ = ["answer", "find_conflict", "in_another_process", "note_of", "refusal"]

_CHILD = "import sys; from kernelmark.timing.elsewhere import answer; answer(sys.argv[1])"
_REQUEST, _ANSWER = "request", "answer"

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Unreceived:
    """The other process could not make anything of what it was sent."""

    why: str


def find_conflict(timer: str | None, device: Device) -> InstrumentConflictError | None:
    """Say what keeps a timer from being used in this process; it is opened and closed to find out.

    Timers that use no profiler are not tried. One that fails for another reason says so where it is used.

    Args:
        timer: Its name; the device's default without one.
        device: Where it is to read.
    """
    name = device.default_timer if timer is None else timer
    entry = next((each for each in TIMERS if each.name == name), None)
    if entry is None or not entry.uses_profiler or not entry.serves_kind(device.kind):
        return None
    try:
        with opened(open_timer(name, device), device):
            return None
    except InstrumentConflictError as conflict:
        return conflict
    except KernelmarkError:
        return None


def in_another_process(function: Callable[[Any], R], request: object, conflict: InstrumentConflictError) -> R:
    """Call ``function(request)`` in a new process and give what it returns.

    Args:
        function: One that can be imported.
        request: What can be sent; see ``sending``.
        conflict: Why it cannot be done here.

    Raises:
        InstrumentConflictError: the request cannot be sent; the message tells the conflict, and why it cannot.
        TimingError: the process ended without an answer.
        Exception: whatever the function raised there, with a note that says where.
    """
    with tempfile.TemporaryDirectory(prefix="kernelmark-elsewhere-") as folder:
        why_not = send((function, request), Path(folder) / _REQUEST)
        if why_not:
            raise refusal(conflict, why_not) from conflict
        done = subprocess.run([sys.executable, "-c", _CHILD, folder], env=importing_the_same(), check=False)
        file = Path(folder) / _ANSWER
        if not file.exists():
            raise TimingError(
                f"the process that was started because {_first_clause(conflict)} gave no answer:"
                f" {death_in_words(done.returncode)}"
            ) from conflict
        given = receive(file)
    if isinstance(given, _Unreceived):
        raise refusal(conflict, given.why) from conflict
    if isinstance(given, BaseException):
        given.add_note(note_of(conflict))
        raise given
    return given


def answer(folder: str) -> None:
    """Be the other process: do what ``folder`` asks for, and leave the answer there."""
    given: Any
    try:
        function, request = receive(Path(folder) / _REQUEST)
    except Exception as error:  # noqa: BLE001 - told by the process that asked
        given = _Unreceived(f"the other process could not import it: {type(error).__name__}: {error}")
    else:
        try:
            given = function(request)
        except Exception as error:  # noqa: BLE001 - raised again by the process that asked
            given = error
    with draft(Path(folder) / _ANSWER) as partial:
        if send(given, partial):  # an error, or a result, that does not pickle is told in words
            send(TimingError(f"{type(given).__name__}: {given}"), partial)


def note_of(conflict: InstrumentConflictError) -> str:
    """Say in a note why something was timed in a process of its own."""
    return f"timed in a process of its own, because {_first_clause(conflict)}"


def refusal(conflict: InstrumentConflictError, why: str) -> InstrumentConflictError:
    """Say that a process of its own was not possible either, and what would make it so."""
    return InstrumentConflictError(
        f"{conflict}. A process of its own was not possible ({why}): give functions that can be imported, and"
        " arguments that can be pickled"
    )


def _first_clause(conflict: InstrumentConflictError) -> str:
    return str(conflict).split(". ", 1)[0]
