"""The channel between a worker and whoever started it: lines of JSON on a socket of their own, not on stdout.

What a process of a worker's may ask for without having been handed its channel is here too: the turn to time, and
whether it may load foreign code.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints

from kernelmark.errors import UnavailableError

__all__ = ["READY", "TIMED", "Channel", "refuse_foreign_code_in_a_judge", "turn_to_time"]

READY, TIMED = "ready", "timed"
"""Stages: a worker has started up, so that its time counts from here and what comes now is about the files that it
runs; it has timed, so that it may know now what its answers are checked with."""

MOST_BYTES = 64 << 20
"""Of one message; more is no message."""


class Channel:
    """A worker's end of the channel."""

    def __init__(self, line: socket.socket) -> None:
        self._line, self._answers = line, line.makefile("r", encoding="utf-8")
        self._lock = threading.RLock()

    def stage(self, name: str, *, limit_s: float | None = None) -> None:
        """Tell that stage ``name`` begins; whoever started this knows it where this process dies.

        Args:
            name: :data:`READY` starts the clock.
            limit_s: Seconds that it may last; the whole's limit holds besides.
        """
        self.say({"stage": name, "limit_s": limit_s})

    def beat(self) -> None:
        """Tell that this process is at work; also each stage and each value tells so."""
        self.say({"beat": True})

    def tell(self, value: object) -> None:
        """Hand over a value now, so that it is there should this process die later."""
        self.say({"told": plain(value)})

    def ask(self, name: str) -> Any:
        """Tell that stage ``name`` is reached, and wait for what is known only then.

        Raises:
            EOFError: whoever started this is gone.
        """
        with self._lock:
            self.say({"stage": name, "limit_s": None, "ask": True})
            return self.receive()["reply"]

    @contextmanager
    def turn(self) -> Iterator[str]:
        """Have the turn to time inside the ``with`` block; gives a note on what is held meanwhile."""
        try:
            with self._lock:
                self.say({"turn": True})
                note = self.receive()["turn"]
        except (OSError, EOFError) as error:
            raise UnavailableError(
                "whoever hands out the turns to time does not answer; run the command again"
            ) from error
        try:
            yield note
        finally:
            self.say({"turn": False})

    def say(self, message: dict[str, Any]) -> None:
        """Send one message."""
        with self._lock:
            self._line.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> Any:
        """Wait for one message.

        Raises:
            EOFError: there are no more.
        """
        line = self._answers.readline()
        if not line.endswith("\n"):
            raise EOFError("whoever started this process is gone")
        return json.loads(line)


# --- values ------------------------------------------------------------------------------------------


def plain(value: object) -> Any:
    """Turn dataclasses, models, paths and enums into what JSON holds; numbers that are none stay so.

    Raises:
        TypeError: part of it is nothing of the kind.
    """
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value, inf_nan_mode="constants")
    except PydanticSerializationError as error:
        raise TypeError(f"a {type(value).__name__} cannot be handed over: {error}") from error


def typed(kind: Any, value: Any) -> Any:
    """Make a value of type ``kind`` of what JSON held.

    Raises:
        ValueError: it is something else.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python(value)


def kinds_of(function: Callable[..., Any]) -> tuple[Any, Any]:
    """Give the types of a function's first parameter and of what it returns; ``Any`` where it does not say."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError):  # it has none, as a built-in one
        return Any, Any
    result = hints.pop("return", Any)
    return next(iter(hints.values()), Any), result


# --- the process's own -------------------------------------------------------------------------------


class _Here:
    """What this process is, where it is a worker."""

    channel: Channel | None = None
    judge = False
    turn: str | None = None
    """The note on the turn that this process has."""


def be_worker(channel: Channel, *, judge: bool) -> None:
    """Let this process be a worker from now on."""
    _Here.channel, _Here.judge = channel, judge


@contextmanager
def turn_to_time() -> Iterator[str]:
    """Have the turn to time inside the ``with`` block; gives a note on what is held meanwhile, blank for nothing.

    Where processes share a machine, whoever started them hands out turns, and holds the others meanwhile. The turn
    ends with the block, and with the process. Inside another one it is that one. Without anybody who started this
    process there is nobody to wait for.

    Raises:
        UnavailableError: whoever hands out the turns is gone, so that nothing would be held.
    """
    if _Here.channel is None or _Here.turn is not None:
        yield _Here.turn or ""
        return
    with _Here.channel.turn() as note:
        _Here.turn = note
        try:
            yield note
        finally:
            _Here.turn = None


def refuse_foreign_code_in_a_judge(path: Path) -> None:
    """Make sure, before code that is judged is loaded from ``path``, that this process judges nobody.

    Raises:
        RuntimeError: it does; a judge that has loaded what it judges vouches for nothing.
    """
    if _Here.judge:
        raise RuntimeError(f"{path}: this process ({os.getpid()}) is a judge, and never loads what it judges")
