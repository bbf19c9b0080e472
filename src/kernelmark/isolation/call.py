"""One call of a worker, followed to its end: its stages, what it hands over, its limits, and the turns to time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kernelmark.errors import UnavailableError
from kernelmark.isolation.channel import MOST_BYTES, READY, plain, turn_to_time, typed
from kernelmark.isolation.failures import Failure, decode
from kernelmark.isolation.process import Process
from kernelmark.isolation.processes import Death, Leader, Stopwatch, held

__all__ = ["Ended", "Following", "Limits", "Turns"]

_GRACE_S = 2.0
_LOOK_S = 0.2
"""How soon it is seen that a limit is reached."""

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


class Turns:
    """Who may time now, among the workers that were given these turns; several threads may use it.

    A turn ends when its worker says so, when it dies, and when it is ended.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._gate = threading.Condition()
        self._starting, self._held_now = 0, False
        self._running: dict[Leader, Stopwatch] = {}

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Start a worker inside the ``with`` block, and :meth:`enter` it; while others are held, only afterwards."""
        with self._gate:
            self._gate.wait_for(lambda: not self._held_now)
            self._starting += 1
        try:
            yield
        finally:
            with self._gate:
                self._starting -= 1
                self._gate.notify_all()

    def enter(self, leader: Leader, clock: Stopwatch) -> None:
        """Let a worker be held from now on, and its clock stand still then."""
        with self._gate:
            self._running[leader] = clock

    def leave(self, leader: Leader) -> None:
        """Forget a worker."""
        with self._gate:
            self._running.pop(leader, None)

    @contextmanager
    def turn(self, leader: Leader) -> Iterator[str]:
        """Hold all workers but this one inside the ``with`` block, and start none; gives a note that says so."""
        with self._turn, ExitStack() as stack:
            with self._gate:
                self._gate.wait_for(lambda: not self._starting)
                self._held_now = True
                others = {each: clock for each, clock in self._running.items() if each != leader}
            stack.callback(self._open)
            for clock in others.values():
                stack.enter_context(clock.still())
            going_on = stack.enter_context(held(others))
            yield _note(len(others), going_on)

    def _open(self) -> None:
        with self._gate:
            self._held_now = False
            self._gate.notify_all()


def _note(count: int, going_on: int) -> str:
    if not count:
        return ""
    others = "another kernel" if count == 1 else f"{count} other kernels"
    unheld = f"; {going_on} of them went on all the same" if going_on else ""
    return f"the processes of {others} were held while this was timed{unheld}"


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
        return self._ended(death=Death(code) if code else None, code=code)

    def _messages(self) -> Iterator[Any]:
        """Give each message as it comes, and at last a death."""
        while True:
            gone = self.process.exit_code(0) is not None  # looked at first: all that it said is there then
            lines = self.process.receive(_LOOK_S)
            for line in lines or ():
                try:
                    message = json.loads(line) if len(line) <= MOST_BYTES else None
                except ValueError:
                    message = None
                yield message if isinstance(message, dict) else _no_message(repr(line[:80]))
            if lines is None or (gone and not lines):
                code = self.process.exit_code(_GRACE_S)
                yield _no_message("its end was closed") if code is None else Death(code)
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
            with self.process.clock.still():  # not counted, while it waits
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

    def _beyond(self) -> Death | None:
        most = self.limits.output_bytes
        if self.process.output is not None and self.process.output.exceeds(most):
            return Death(detail=f"it wrote more than {most} bytes to its output, and was ended")
        if self.process.clock.paused:
            return None
        now = self.process.clock.seconds
        over = [said for end, said in self._ends() if now >= end]
        return Death(detail=over[0], timed_out=True) if over else None

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
    return Death(detail=f"it said on its channel what is no message: {what}, and was ended")
