"""Times calls in a process of their own, for an instrument that cannot follow another one in this process.

What can be pickled can be sent: functions that are importable, their arguments, tensors on the device too.
A function of the main script, a lambda and a closure exist in their own process alone.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmark.errors import InstrumentConflictError, TimingError
from kernelmark.process import importing_the_same
from kernelmark.records import Timing
from kernelmark.timing.options import TimingOptions
from kernelmark.timing.timer import Call

__all__ = ["answer", "time_isolated"]

_CHILD = "import sys; from kernelmark.timing.isolated import answer; answer(sys.argv[1])"
_REQUEST, _ANSWER = "request.pickle", "answer.pickle"
_NOTE = "timed in a process of its own, because {}"


@dataclass(frozen=True, slots=True)
class _Request:
    calls: Mapping[str, Call]
    device: str
    timer: str
    options: TimingOptions | None


def time_isolated(
    calls: Mapping[str, Call],
    device: str,
    *,
    timer: str,
    options: TimingOptions | None = None,
    conflict: InstrumentConflictError,
) -> dict[str, Timing]:
    """Do as ``time_together`` in a new process.

    Args:
        calls: What to time, by name; all of it must pickle.
        device: The device's name in torch.
        timer: The timer's name.
        options: As for ``time_together``.
        conflict: Why it cannot be done here; each row notes it.

    Raises:
        InstrumentConflictError: the calls cannot be sent; the message tells the conflict, and why they cannot.
        TimingError: the process ended without an answer, or its instrument cannot vouch for its readings.
        Exception: whatever a call raises there.
    """
    request = _pickled(_Request(calls, device, timer, options), conflict)
    with tempfile.TemporaryDirectory(prefix="kernelmark-isolated-") as folder:
        (Path(folder) / _REQUEST).write_bytes(request)
        done = subprocess.run([sys.executable, "-c", _CHILD, folder], env=importing_the_same(), check=False)
        file = Path(folder) / _ANSWER
        if not file.exists():
            raise TimingError(
                f"the process in which {timer} was to time ended with exit code {done.returncode} and no answer;"
                f" it had been started because {_first_clause(conflict)}"
            ) from conflict
        given = pickle.loads(file.read_bytes())
    if isinstance(given, BaseException):
        given.add_note(_NOTE.format(_first_clause(conflict)))
        raise given
    note = _NOTE.format(_first_clause(conflict))
    timings = {name: Timing.model_validate_json(text) for name, text in given.items()}
    return {name: each.model_copy(update={"notes": (*each.notes, note)}) for name, each in timings.items()}


def answer(folder: str) -> None:
    """Be the other process: time what ``folder`` asks for, and leave the answer there."""
    from kernelmark.device import open_device
    from kernelmark.timing.timers import open_timer
    from kernelmark.timing.together import time_together

    given: Any
    try:
        request: _Request = pickle.loads((Path(folder) / _REQUEST).read_bytes())
        device = open_device(request.device)
        timings = time_together(
            request.calls, device, timer=open_timer(request.timer, device), options=request.options
        )
        given = {name: timing.model_dump_json() for name, timing in timings.items()}
    except Exception as error:  # noqa: BLE001 - raised again by the process that asked
        given = error
    try:
        content = pickle.dumps(given)
    except Exception:  # noqa: BLE001 - an error that does not pickle is told in words
        content = pickle.dumps(TimingError(f"{type(given).__name__}: {given}"))
    (Path(folder) / _ANSWER).write_bytes(content)


def _pickled(request: _Request, conflict: InstrumentConflictError) -> bytes:
    try:
        content = pickle.dumps(request)
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError) as error:  # what pickle raises
        raise _unsendable(conflict, str(error)) from conflict
    if b"__main__" in content:
        raise _unsendable(conflict, "it belongs to the main script, which no other process can import")
    return content


def _unsendable(conflict: InstrumentConflictError, why: str) -> InstrumentConflictError:
    return InstrumentConflictError(
        f"{conflict}. A process of its own was not possible for this call ({why}): give a function that can be"
        " imported and arguments that can be pickled"
    )


def _first_clause(conflict: InstrumentConflictError) -> str:
    return str(conflict).split(". ", 1)[0]
