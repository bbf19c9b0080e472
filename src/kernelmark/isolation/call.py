"""One call of a worker, followed to its end: its stages, what it hands over, its turns and its limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kernelmark.errors import UnavailableError
from kernelmark.isolation.channel import MOST_BYTES, READY, plain, turn_to_time, typed
from kernelmark.isolation.failures import Failure, decode
from kernelmark.isolation.process import Process
from kernelmark.isolation.processes import Death, DeathKind, paused
from kernelmark.isolation.turns import Turns

__all__ = ["Ended", "Following", "Limits"]

_GRACE_S = 2.0
_LOOK_S = 0.2
"""How soon a limit is seen that came nearer while its worker was not held any more, or an output that grew."""

_OF_A_STACK = ("Extension modules:", "  File ", "Current thread ", "Thread ", "  <", "  ...")
"""How lines of a stack begin that Python's fault handler writes last; the line before says more."""

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a process may take."""

    time_s: float | None
    """From its start; from stage ``READY`` where there is a limit for the start."""
    memory_bytes: int | None = None
    """Address space; an allocation beyond it fails, as it does where memory runs out."""
    start_s: float | None = None
    """Until it says that it is ready."""
    silence_s: float | None = None
    """Between two things that it says."""
    output_bytes: int = 256 << 20
    """What it may write to stdout and stderr, each."""


@dataclass(frozen=True, slots=True)
class Ended(Generic[A]):
    """How a call ended: with an answer, with a failure, or with a death; and how far it came."""

    answer: A | None = None
    """What the function returned."""
    failure: Failure | None = None
    """What it raised."""
    death: Death | None = None
    """How its process died before it could answer."""
    stage: str = ""
    """The last that it told."""
    stages: tuple[str, ...] = ()
    """All that it told, in order."""
    told: tuple[Any, ...] = ()
    """The values that it handed over before its end, as JSON holds them."""
    output: str = ""
    """The last lines that it wrote to stdout."""
    errors: str = ""
    """The last lines that it wrote to stderr."""
    wall_s: float = 0.0
    """How long it ran, without the time for which it was held or waited for its turn; from ``READY`` on if told."""
    code: int | None = None
    """The exit status of a command."""

    @property
    def message(self) -> str:
        """Why there is no answer, in words; blank where there is one."""
        return self.failure.message if self.failure else str(self.death) if self.death else ""

    @property
    def last_words(self) -> str:
        """The last line that it wrote, to stderr if it did; Python's fault handler's stack is not among them."""
        said = (self.errors or self.output).strip().splitlines()
        return next((line for line in reversed(said) if not line.startswith(_OF_A_STACK)), "")

    def value(self) -> A:
        """Give the answer.

        Raises:
            Exception: what the function raised.
            UnavailableError: its process died; the message says how.
        """
        if self.failure is not None:
            raise self.failure.error
        if self.death is not None:
            raise UnavailableError(str(self.death))
        return self.answer  # type: ignore[return-value]  # what a function without a type returns may be None


@dataclass(slots=True)
class Following:
    """One call of a worker, followed to its end."""

    process: Process
    limits: Limits
    turns: Turns | None
    on_stage: Callable[[str], object]
    on_told: Callable[[Any], object]
    replies: Mapping[str, Callable[[], object]]
    began_s: float = 0.0
    """When its time began, by the clock that stands still."""
    heard_s: float = 0.0
    stage_ends_s: float | None = None
    stages: list[str] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    turn: ExitStack = field(default_factory=ExitStack)

    def follow(self, request: object, kind: Any) -> Ended[Any]:
        """Ask, and wait for the answer, the death, or the end of a limit."""
        self.began_s = self.heard_s = self.process.clock.seconds
        self.process.send({"request": plain(request)})
        with self.turn:
            for message in self._messages():
                if isinstance(message, Death):
                    return self._ended(death=message)
                try:
                    if "answer" in message:
                        return self._ended(answer=typed(kind, message["answer"]))
                    if "error" in message:
                        return self._ended(failure=decode(message["error"]))
                    self._take(message)
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    return self._ended(death=_no_message(str(error)))
        raise AssertionError("messages end with a death")

    def to_exit(self) -> Ended[None]:
        """Wait for the end of a program that says nothing."""
        death = None
        while (code := self.process.exit_code(_LOOK_S)) is None:
            if death := self._beyond():
                return self._ended(death=death)
        return self._ended(death=Death.of_code(code) if code else None, code=code)

    def _messages(self) -> Iterator[Any]:
        """Give each message as it comes, and at last a death."""
        while True:
            gone = self.process.exit_code(0) is not None  # looked at first: all that it said is there then
            lines = self.process.receive(min(_LOOK_S, max(0.01, self._left_s())))
            for line in lines or ():
                try:
                    message = json.loads(line) if len(line) <= MOST_BYTES else None
                except ValueError:
                    message = None
                yield message if isinstance(message, dict) else _no_message(repr(line[:80]))
            if lines is None or (gone and not lines):
                code = self.process.exit_code(_GRACE_S)
                yield _no_message("its end was closed") if code is None else Death.of_code(code)
            elif death := self._beyond():
                yield death

    def _take(self, message: dict[str, Any]) -> None:
        self.heard_s = self.process.clock.seconds
        if "stage" in message:
            self._begin(str(message["stage"]), message["limit_s"])
            if message.get("ask"):
                self.process.send({"reply": plain(self.replies[message["stage"]]())})
        elif "told" in message:
            self.told.append(message["told"])
            self.on_told(message["told"])
        elif message.get("turn"):
            with paused([self.process.clock]):  # not counted, while it waits
                having = self.turns.turn(self.process.leader) if self.turns else turn_to_time()
                note = self.turn.enter_context(having)
            self.process.send({"turn": note})
        elif "turn" in message:
            self.turn.close()

    def _begin(self, stage: str, limit_s: float | None) -> None:
        now = self.process.clock.seconds
        if stage == READY and READY not in self.stages:
            self.began_s = now
        self.stage_ends_s = None if limit_s is None else now + float(limit_s)
        self.stages.append(stage)
        self.on_stage(stage)

    def _ends(self) -> Iterator[tuple[float, str]]:
        """Give each limit that holds now: when it ends, and what is said then."""
        limits = self.limits
        if limits.start_s is not None and READY not in self.stages:
            yield self.began_s + limits.start_s, f"it did not start up within {limits.start_s:g} s"
        elif limits.time_s is not None:
            yield self.began_s + limits.time_s, f"it did not end within {limits.time_s:g} s"
        if self.stage_ends_s is not None:
            yield self.stage_ends_s, f"{self.stages[-1]} did not end within its time"
        if limits.silence_s is not None:
            yield self.heard_s + limits.silence_s, f"nothing was heard of it for {limits.silence_s:g} s"

    def _left_s(self) -> float:
        return min((end for end, _ in self._ends()), default=float("inf")) - self.process.clock.seconds

    def _beyond(self) -> Death | None:
        most = self.limits.output_bytes
        if self.process.output is not None and self.process.output.exceeds(most):
            return Death(
                DeathKind.OUTPUT, detail=f"it wrote more than {most} bytes to its output, and was ended"
            )
        if self.process.clock.paused:
            return None
        now = self.process.clock.seconds
        over = [said for end, said in self._ends() if now >= end]
        return Death(DeathKind.TIME, detail=over[0]) if over else None

    def _ended(self, **how: Any) -> Ended[Any]:
        process = self.process
        output, errors = process.output.tails if process.output else ("", "")
        return Ended(
            **how,
            stage=self.stages[-1] if self.stages else "",
            stages=tuple(self.stages),
            told=tuple(self.told),
            output=output,
            errors=errors,
            wall_s=process.clock.seconds - self.began_s,
        )


def _no_message(what: str) -> Death:
    return Death(
        DeathKind.CHANNEL, detail=f"it said on its channel what is no message: {what}, and was ended"
    )
