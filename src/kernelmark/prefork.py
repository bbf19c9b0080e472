"""Starts processes that have their libraries already: a server that imported them once, and forks for each request.

A kernel's process takes 1.2 s to its first result from here and 3.8 s from nothing, and a suite has 250 of them.
It knows nothing of what the processes do: a request is the arguments of a function, and what it prints goes to a
file. Each process leads a group of its own, has a limit of time and one of memory, and may die as it likes. All but
one can be held for a while, which their limits do not count.

The server forks before any library has started a thread, and never runs a request itself.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from kernelmark.errors import UnavailableError
from kernelmark.holding import Held, Stopwatch, hold, members
from kernelmark.process import tail_of

__all__ = ["Finished", "Limits", "Prefork", "errors_beside"]

_GRACE_S = 2.0
_LOOK_S = 0.2
"""How soon a limit is seen that came nearer while its process was not held any more."""
_START_S = 120.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a process may take."""

    time_s: float
    memory_bytes: int | None = None
    """Address space; an allocation beyond it fails, as it does where memory runs out."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a process ended."""

    code: int
    """Its exit status, or minus the number of the signal that it died of."""
    timed_out: bool
    output: str
    """The last lines that it wrote to stdout."""
    errors: str
    """The last lines that it wrote to stderr."""
    wall_s: float
    """How long it ran, without the time for which it was held or waited for its turn."""


Variables = Callable[[int], Mapping[str, str]]
"""Gives what the environment of the process with this number has beside the server's."""


class Prefork:
    """The server, seen from the process that sends it requests; close it, or use it in a ``with`` block.

    Args:
        target: ``module:function``: called in each process with the list of arguments; what it returns, or the
            code of a ``SystemExit``, is the exit status.
        preload: Modules that are imported once, before the first request.
        environment: What the server's environment has beside this process's own.

    Raises:
        UnavailableError: the server cannot import a module; with what it wrote.
    """

    def __init__(
        self, target: str, *, preload: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, _Pending] = {}
        self._gate = threading.Condition()
        self._held_now = self._closed = False
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, target, *preload],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        self._number = 0
        self._await_start()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Prefork:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self, arguments: Sequence[str], *, log: Path, limits: Limits, variables: Variables | None = None
    ) -> Finished:
        """Run one process to its end, or to its limit; what it started is gone when this returns.

        What it writes goes to ``log``, and to the file beside it that ends in ``.err``. Several threads may call
        this at once.

        Raises:
            UnavailableError: the server itself is gone.
        """
        errors = errors_beside(log)
        for file in (log, errors):
            file.touch()
        request = {"arguments": list(arguments), "log": str(log), "errors": str(errors)}
        pending = self._start({**request, "memory_bytes": limits.memory_bytes}, variables)
        timed_out = False
        try:
            timed_out = not _ended_within(pending, limits.time_s)
        finally:
            self._end(pending)
        if pending.code is None or self._closed:  # its end is ours then, and says nothing of it
            raise UnavailableError("the process that starts the workers ended; run the command again")
        return Finished(pending.code, timed_out, tail_of(log), tail_of(errors), pending.clock.seconds)

    def runs(self, number: int) -> bool:
        """Whether the process with this number has not ended."""
        with self._lock:
            return number in self._waiting

    @contextmanager
    def waiting(self, number: int) -> Iterator[None]:
        """Let the time inside the ``with`` block not count for the process with this number."""
        with self._lock:
            pending = self._waiting.get(number)
        with _paused([pending.clock] if pending else []):
            yield

    @contextmanager
    def alone(self, number: int) -> Iterator[Held]:
        """Hold all processes but this one inside the ``with`` block, and start none; one thread at a time."""
        with self._gate:
            self._held_now = True
        try:
            with self._lock:
                others = [each for its, each in self._waiting.items() if its != number and each.pid]
            with _paused([each.clock for each in others]):
                held = hold(each.pid for each in others if each.pid)
                try:
                    yield held
                finally:
                    held.release()
        finally:
            with self._gate:
                self._held_now = False
                self._gate.notify_all()

    def close(self) -> None:
        """End the server and whatever it still runs."""
        with self._gate:
            self._closed = True
            self._gate.notify_all()
        with self._lock:
            pending = list(self._waiting.values())
        for each in pending:
            self._end(each)
        self._close_pipes()

    def _close_pipes(self) -> None:
        """Close the server's input, at which it ends, and then the rest."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def _await_start(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        timer = threading.Timer(_START_S, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            said = self._process.stderr.read().strip()
            self._close_pipes()
            raise UnavailableError(f"the process that starts the workers could not start:\n{said[-2000:]}")

    def _start(self, request: dict[str, Any], variables: Variables | None) -> _Pending:
        """Start a process; while the others are held, only afterwards."""
        with self._gate:
            self._gate.wait_for(lambda: self._closed or not self._held_now)
            pending = self._ask(request, variables)
            # known to whoever holds the next time, before anybody can
            pending.started.wait(_GRACE_S)
        return pending

    def _ask(self, request: dict[str, Any], variables: Variables | None) -> _Pending:
        with self._lock:
            self._number += 1
            request["environment"] = dict(variables(self._number)) if variables else {}
            pending = _Pending()
            self._waiting[self._number] = pending
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(json.dumps({"number": self._number, **request}) + "\n")
                self._process.stdin.flush()
            except (OSError, ValueError):  # its end of the pipe is gone, or ours is
                del self._waiting[self._number]
                pending.started.set()
                pending.done.set()
        return pending

    def _end(self, pending: _Pending) -> None:
        """Kill a process and what it started: also the group of one that ended by itself, for what it may have left."""
        pending.started.wait(_GRACE_S)
        if pending.pid:
            started = members(pending.pid)
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pending.pid, number)
                    os.killpg(pending.pid, signal.SIGCONT)  # one that is held does not see what it is sent
                if pending.done.wait(_GRACE_S):
                    break
            _kill_all(pending.pid, started)

    def _read(self) -> None:
        """Take the server's answers, in a thread of its own, until it ends."""
        assert self._process.stdout is not None
        with suppress(ValueError, OSError):
            for line in self._process.stdout:
                answer = json.loads(line)
                with self._lock:
                    pending = self._waiting.get(answer["number"])
                if pending is None:
                    continue
                if "pid" in answer:
                    pending.pid = answer["pid"]
                    pending.started.set()
                else:
                    pending.code = answer["code"]
                    with self._lock:
                        del self._waiting[answer["number"]]
                    pending.done.set()
        with self._lock:
            left, self._waiting = list(self._waiting.values()), {}
        for pending in left:
            pending.started.set()
            pending.done.set()


def errors_beside(log: Path) -> Path:
    """Give the file that a process's stderr goes to, beside that of its stdout."""
    return log.with_suffix(".err")


class _Pending:
    """A request whose process has not ended."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.code: int | None = None
        self.started, self.done = threading.Event(), threading.Event()
        self.clock = Stopwatch()


def _ended_within(pending: _Pending, limit_s: float) -> bool:
    """Wait for a process's end, no longer than its clock allows; the clock stands still while it is held."""
    while not pending.done.wait(min(max(limit_s - pending.clock.seconds, 0.01), _LOOK_S)):
        if not pending.clock.paused and pending.clock.seconds >= limit_s:
            return False
    return True


@contextmanager
def _paused(clocks: Sequence[Stopwatch]) -> Iterator[None]:
    for clock in clocks:
        clock.pause()
    try:
        yield
    finally:
        for clock in clocks:
            clock.go_on()


# --- the server ------------------------------------------------------------------------------------


def _serve(target: str, preload: Sequence[str]) -> None:
    module, _, name = target.partition(":")
    function = getattr(import_module(module), name)
    for each in preload:
        with suppress(ModuleNotFoundError):  # where it is needed, a process says what to install
            import_module(each)
    running: dict[int, int] = {}
    # A child's end arrives as a byte in a pipe, so that one wait is for both: requests and ends.
    ends, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _say({"ready": True})
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(ends, selectors.EVENT_READ)
        rest = b""
        while True:
            for key, _ in selector.select():
                if key.fd == ends:
                    os.read(ends, 4096)
                    _reap(running)
                    continue
                data = os.read(0, 65536)
                if not data:
                    for pid in running:  # whoever asked is gone, and may have left some of them held
                        _kill_all(pid, members(pid))
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    _fork(json.loads(line), function, running)


def _fork(request: dict[str, Any], function: Any, running: dict[int, int]) -> None:
    pid = os.fork()
    if pid == 0:
        _child(request, function)
    with suppress(OSError):  # in both processes, since either may be first
        os.setpgid(pid, pid)
    running[pid] = request["number"]
    _say({"number": request["number"], "pid": pid})


def _child(request: dict[str, Any], function: Any) -> None:
    """Be the process; never return."""
    code = 70
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        writing = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(request["log"], writing, 0o644), 1)
        os.dup2(os.open(request["errors"], writing, 0o644), 2)
        os.environ.update(request["environment"])
        if request["memory_bytes"] is not None:
            resource.setrlimit(resource.RLIMIT_AS, (request["memory_bytes"], request["memory_bytes"]))
        code = function(request["arguments"]) or 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:  # noqa: BLE001 - the outermost frame of a process: it is told, and ends here
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)  # house: a forked child must not run the code of its parent


def _kill_all(leader: int, started: Iterable[int]) -> None:
    """Kill a group, and what was started from it and is in another."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for pid in started:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _reap(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        if pid in running:
            _say({"number": running.pop(pid), "code": os.waitstatus_to_exitcode(status)})


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2:])
