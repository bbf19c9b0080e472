"""Workers: a function that is called in a process of its own, and what became of it, as one value."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from kernelmark.errors import UnavailableError
from kernelmark.isolation.call import Ended, Following, Limits, Turns
from kernelmark.isolation.channel import kinds_of
from kernelmark.isolation.forkserver import ForkServer
from kernelmark.isolation.process import Output, Process

__all__ = ["Judge", "Start", "Worker", "run_command"]

A = TypeVar("A")
_Target = Callable[..., A] | str


class Start(StrEnum):
    """How a worker's process is started."""

    FORK = "fork"
    """By a fork server, which has its libraries already; what was forked cannot use a GPU that the server opened."""
    SPAWN = "spawn"
    """Each from nothing."""


class Worker(Generic[A]):
    """Calls a function in a process of its own; close it, or use it in a ``with`` block.

    Where ``keep`` is not asked for, several threads may call at once, and each call has a process of its own.

    Args:
        target: The function: one that can be imported, or ``module:function``. It is called with the request and
            the :class:`~kernelmark.isolation.channel.Channel`; the type of its first parameter is what the request
            is made into there, and what it returns has to be a value that JSON can hold: numbers, text, lists,
            dataclasses, models, paths, enums.
        limits: What each call may take.
        start: By a fork server of its own, by this one, which others share, or afresh.
        answer: What the answer is made into here; the function's own result type without it, or what JSON holds
            where only a name is given.
        preload: What the fork server imports, where it has one of its own.
        environment: What the worker's environment has beside this process's own.
        keep: Whether one process serves all calls, as long as they end well; else each has its own, which is gone
            with all that it started when the call returns. One that is kept ends with the thread that began it.
        turns: Who may time now; without it, whoever started this process is asked.
        shown: Whether its output goes where this process's own does; it has no limit there, and is not kept.
    """

    _judge = False

    def __init__(
        self,
        target: _Target[A],
        limits: Limits,
        *,
        start: Start | ForkServer = Start.SPAWN,
        answer: Any = None,
        preload: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        keep: bool = False,
        turns: Turns | None = None,
        shown: bool = False,
    ) -> None:
        self._target = target if isinstance(target, str) else f"{target.__module__}:{target.__qualname__}"
        self._kind = answer or (Any if isinstance(target, str) else kinds_of(target)[1])
        self.limits, self._keep, self._turns, self._shown = limits, keep, turns, shown
        self._environment, self._preload = dict(environment or {}), tuple(preload)
        self._start, self._own_server = start, start is Start.FORK
        self._lock = threading.Lock()
        self._kept: Process | None = None
        self._live: set[Process] = set()
        self._closed = False

    def __enter__(self) -> Worker[A]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self,
        request: object = None,
        *,
        log: Path | None = None,
        limits: Limits | None = None,
        on_stage: Callable[[str], object] = lambda stage: None,
        on_told: Callable[[Any], object] = lambda value: None,
        replies: Mapping[str, Callable[[], object]] | None = None,
    ) -> Ended[A]:
        """Call the function with ``request`` in the worker, and wait for its end.

        Args:
            request: Plain values, as the answer; see the class.
            log: Where its stdout goes; its stderr goes beside it, see :func:`errors_beside`. It is kept; without
                it the output's end is in the result only.
            limits: Instead of the worker's own.
            on_stage: Called with each stage as it is told.
            on_told: Called with each value as it is handed over.
            replies: By stage, what makes the reply where the worker asks; drawn when it asks, not before.

        Raises:
            UnavailableError: no process can be started, or all was closed meanwhile.
        """
        limits = limits or self.limits
        process = self._process(limits)
        good = False
        try:
            following = Following(process, limits, self._turns, on_stage, on_told, replies or {})
            ended = following.follow(request, self._kind)
            good = ended.death is None and ended.failure is None
        finally:
            if log is not None and process.output is not None:
                process.output.keep(log)
            if not self._keep or not good:
                self._retire(process)
                if process.output is not None:
                    process.output.close()
        if self._closed and not good:  # its end is ours then, and says nothing of it
            raise UnavailableError("the workers were ended while one was at work; run the command again")
        return ended

    def close(self) -> None:
        """End what still runs, with whatever it started."""
        with self._lock:
            self._closed = True
            live, server, kept = list(self._live), self._start, self._kept
        for process in live:
            self._retire(process)
        if kept is not None and kept.output is not None:
            kept.output.close()
        if self._own_server and isinstance(server, ForkServer):
            server.close()

    def _process(self, limits: Limits) -> Process:
        if self._kept is not None and self._kept.exit_code(0) is None:
            if self._kept.output is not None:
                self._kept.output.empty()
            return self._kept
        process = self._started()
        process.send({"target": self._target, "memory_bytes": limits.memory_bytes, "judge": self._judge})
        if self._keep:
            self._kept = process
        return process

    def _started(self) -> Process:
        with ExitStack() as stack:
            if self._turns is not None:
                stack.enter_context(self._turns.starting())
            with self._lock:
                if self._closed:
                    raise UnavailableError("the workers were closed; run the command again")
                if self._start is Start.FORK:
                    self._start = ForkServer(self._preload, environment=self._environment)
                server = self._start if isinstance(self._start, ForkServer) else None
            output = None if self._shown else Output()
            process = Process(server, self._environment, output)
            with self._lock:
                self._live.add(process)
            if self._turns is not None:
                self._turns.enter(process.leader, process.clock)
        if self._closed:
            self._retire(process)
            if output is not None:
                output.close()
            raise UnavailableError("the workers were closed; run the command again")
        return process

    def _retire(self, process: Process) -> None:
        process.end()
        if self._turns is not None:
            self._turns.leave(process.leader)
        with self._lock:
            self._live.discard(process)
            if self._kept is process:
                self._kept = None


class Judge(Worker[A]):
    """A worker that never loads what it judges: whatever loads foreign code refuses to in its process."""

    _judge = True


def run_command(
    command: Sequence[str | Path],
    *,
    log: Path,
    limits: Limits,
    environment: Mapping[str, str] | None = None,
) -> Ended[None]:
    """Run a program that knows nothing of workers to its end; whatever it started is gone when this returns.

    Raises:
        UnavailableError: it could not be started.
    """
    output = Output()
    process = Process(None, dict(environment or {}), output, command=tuple(map(str, command)))
    try:
        return Following(process, limits, None, lambda stage: None, lambda value: None, {}).to_exit()
    finally:
        output.keep(log)
        process.end()
        output.close()
