"""Calls a function in a process of its own, for an instrument that cannot follow another one in this process.

It knows neither what the function does nor which profilers there are: it gets the conflict, and gives it on. What the
function is called with may be anything that can be pickled, tensors on their device among it; it passes through a
file, in which tensors that are one object, or views of one storage, stay so. Functions travel by name, so a lambda,
a closure and whatever belongs to the main script cannot be sent.
"""

from __future__ import annotations

import io
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, TypeVar

from kernelmark.device import Device
from kernelmark.errors import InstrumentConflictError, KernelmarkError, TimingError
from kernelmark.isolation import Channel, Limits, Worker, importing_the_same
from kernelmark.text import in_short
from kernelmark.timing.timer import opened
from kernelmark.timing.timers import TIMERS, open_timer

__all__ = [
    "answer",
    "find_conflict",
    "in_another_process",
    "note_of",
    "receive",
    "refusal",
    "send",
    "why_unsendable",
]

_REQUEST, _ANSWER = "request", "answer"
_RECEIVED = "received"
"""The stage from which on what goes wrong is the function's doing."""

R = TypeVar("R")


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
        request: What can be sent.
        conflict: Why it cannot be done here.

    Raises:
        InstrumentConflictError: the request cannot be sent; the message tells the conflict, and why it cannot.
        TimingError: the process ended without an answer.
        Exception: whatever the function raised there, with a note that says where.
    """
    with tempfile.TemporaryDirectory(prefix="kernelmark-elsewhere-") as folder:
        place = Path(folder)
        if why_not := send((function, request), place / _REQUEST):
            raise refusal(conflict, why_not) from conflict
        with Worker(answer, Limits(None), environment=importing_the_same(), shown=True) as worker:
            ended = worker.call(place)
        if ended.failure is None and ended.death is None:
            return receive(place / _ANSWER)
    error = ended.failure.error if ended.failure is not None else None
    if error is not None and _RECEIVED not in ended.stages:
        raise refusal(conflict, f"the other process could not import it: {in_short(error)}") from conflict
    if not isinstance(error, Exception):
        raise TimingError(
            f"the process that was started because {_first_clause(conflict)} gave no answer: {ended.message}"
        ) from conflict
    error.add_note(note_of(conflict))
    raise error


def answer(folder: Path, channel: Channel) -> None:
    """Be the other process: do what ``folder`` asks for, and leave the answer there.

    Raises:
        Exception: whatever importing what is asked for raises, or the function itself.
    """
    function, request = receive(folder / _REQUEST)
    channel.stage(_RECEIVED)
    if why_not := send(function(request), folder / _ANSWER):
        raise TimingError(f"the result cannot be sent: {why_not}")


def note_of(conflict: InstrumentConflictError, done: str = "timed") -> str:
    """Say in a note why something was ``done`` in a process of its own."""
    return f"{done} in a process of its own, because {_first_clause(conflict)}"


def refusal(conflict: InstrumentConflictError, why: str) -> InstrumentConflictError:
    """Say that a process of its own was not possible either, and what would make it so."""
    return InstrumentConflictError(
        f"{conflict}. A process of its own was not possible ({why}): give functions that can be imported, and"
        " arguments that can be pickled"
    )


def _first_clause(conflict: InstrumentConflictError) -> str:
    return str(conflict).split(". ", 1)[0]  # house: shortened, nothing else


# --- what can be sent ------------------------------------------------------------------------------------

_REASONS = (pickle.PicklingError, AttributeError, TypeError, RuntimeError, NotImplementedError)
"""What pickling raises for something that cannot be pickled; torch's storages raise the last two."""


class _Pickler(pickle.Pickler):
    """A pickler that finds out what only the main script has, which the other process would miss."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) or callable(obj):
            if getattr(obj, "__module__", None) == "__main__":
                name = getattr(obj, "__qualname__", type(obj).__qualname__)
                raise pickle.PicklingError(
                    f"{name} belongs to the main script, which no other process can import"
                )
        elif type(obj).__module__ == "__main__":
            raise pickle.PicklingError(
                f"a {type(obj).__qualname__} belongs to the main script, which no other process can import"
            )
        return NotImplemented


_AS_MODULE = SimpleNamespace(__name__="pickle", Pickler=_Pickler)
"""What torch takes for a pickle module."""


def send(thing: object, path: Path) -> str:
    """Write ``thing`` to ``path``; blank, or why it cannot be sent."""
    with open(path, "wb") as stream:
        return _write(thing, stream)


def why_unsendable(thing: object) -> str:
    """Say why ``thing`` cannot be sent; blank if it can."""
    return _write(thing, io.BytesIO())


def receive(path: Path) -> Any:
    """Read what :func:`send` wrote, which has to come from this program.

    Raises:
        Exception: whatever importing what it names raises.
    """
    import torch

    return torch.load(path, weights_only=False)


def _write(thing: object, stream: IO[bytes]) -> str:
    import torch

    try:
        # torch's own format keeps storages apart from the pickle, so that views go on sharing theirs
        torch.save(thing, stream, pickle_module=_AS_MODULE, pickle_protocol=5)
    except _REASONS as error:
        return str(error)
    return ""
