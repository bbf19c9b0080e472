"""One process that leads a group: how it is started, its output, this end of its channel, and its end."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernelmark.errors import UnavailableError
from kernelmark.isolation.channel import MOST_BYTES
from kernelmark.isolation.forkserver import ForkServer
from kernelmark.isolation.processes import MARK, Leader, Stopwatch, ask_to_end, end_all, members, new_mark

__all__ = ["Output", "Process", "errors_beside"]

_GRACE_S = 2.0
_IDLE_S = 0.05
"""What an idle worker takes to end when its channel is closed."""
_TAIL_BYTES = 8192
_TAIL_LINES = 25
_PROGRAM = "import sys; from kernelmark.isolation.child import main; main(int(sys.argv[1]), int(sys.argv[2]))"


def errors_beside(log: Path) -> Path:
    """Give the file that a process's stderr goes to, beside that of its stdout."""
    return log.with_suffix(".err")


class Output:
    """Where a process's stdout and stderr go: files that have no name, so that nothing need remove them."""

    def __init__(self) -> None:
        self.streams = (
            tempfile.TemporaryFile(),  # noqa: SIM115 - closed with the process
            tempfile.TemporaryFile(),  # noqa: SIM115 - closed with the process
        )
        for each in self.streams:  # appended to, so that they can be emptied between calls
            fcntl.fcntl(each, fcntl.F_SETFL, os.O_APPEND)

    @property
    def tails(self) -> tuple[str, str]:
        """The last lines of both."""
        return _tail(self.streams[0].fileno()), _tail(self.streams[1].fileno())

    def exceeds(self, limit: int) -> bool:
        """Whether one of them has more than ``limit`` bytes."""
        return any(os.fstat(each.fileno()).st_size > limit for each in self.streams)

    def empty(self) -> None:
        """Forget what was written."""
        for each in self.streams:
            each.truncate(0)

    def keep(self, log: Path) -> None:
        """Copy both to files with a name."""
        for stream, file in zip(self.streams, (log, errors_beside(log)), strict=True):
            offset, size = 0, os.fstat(stream.fileno()).st_size
            with open(file, "wb") as copy:
                while offset < size:
                    offset += os.sendfile(copy.fileno(), stream.fileno(), offset, size - offset)

    def close(self) -> None:
        """Let go of both."""
        for each in self.streams:
            each.close()


def _tail(log: int) -> str:
    # by a place of its own: the stream's is the process's too, which may be writing
    end = os.pread(log, _TAIL_BYTES, max(0, os.fstat(log).st_size - _TAIL_BYTES))
    return "\n".join(end.decode(errors="replace").strip().splitlines()[-_TAIL_LINES:])


class Process:
    """A process that leads a group, and this end of its channel.

    Args:
        server: What forks it; an interpreter, or ``command``, is started without one.
        environment: What its environment has beside this process's own, or the server's.
        output: Where its output goes; where this process's own does without it.
        command: A program that knows nothing of workers.

    Raises:
        UnavailableError: it cannot be started.
    """

    def __init__(
        self,
        server: ForkServer | None,
        environment: Mapping[str, str],
        output: Output | None,
        command: tuple[str, ...] = (),
    ) -> None:
        mark = new_mark()
        self.output, self.clock = output, Stopwatch()
        self._code: int | None = None
        self._popen: subprocess.Popen[bytes] | None = None
        self._status: int | None = None
        self._rest = b""
        self._lock = threading.RLock()
        self._channel, theirs = socket.socketpair()
        out, err = (each.fileno() for each in output.streams) if output else (1, 2)
        more = {**environment, MARK: mark}
        try:
            if server is not None:
                pid, self._status = server.fork((theirs.fileno(), out, err), more)
            else:
                self._popen = _spawned(command, theirs.fileno(), (out, err), more)
                pid = self._popen.pid
        except BaseException:
            self._channel.close()
            if output is not None:
                output.close()
            raise
        finally:
            theirs.close()
        self.leader = Leader(pid, mark)

    def send(self, message: Mapping[str, Any]) -> None:
        """Say something to it; one that has died is found by its exit status."""
        with suppress(OSError):
            self._channel.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, wait_s: float) -> list[bytes] | None:
        """Give what it has said, line by line, waiting for it at most so long; ``None`` where no more will come."""
        try:
            if not select.select([self._channel], [], [], wait_s)[0]:
                return []
            data = self._channel.recv(1 << 16)
        except (OSError, ValueError):  # closed, at its end or at ours
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [*lines, self._rest] if len(self._rest) > MOST_BYTES else lines

    def exit_code(self, wait_s: float) -> int | None:
        """Give its exit status, waiting at most so long for it; ``None`` while it runs."""
        with self._lock:
            if self._code is None and self._popen is not None:
                with suppress(subprocess.TimeoutExpired):
                    self._code = self._popen.wait(wait_s)
            elif (
                self._code is None
                and self._status is not None
                and select.select([self._status], [], [], wait_s)[0]
            ):
                # nothing comes where the server itself was killed, and all that it had forked with it
                self._code = int(os.read(self._status, 16) or -signal.SIGKILL)
            return self._code

    def end(self) -> None:
        """End it and all that belongs to it: also what one that ended by itself may have left."""
        with self._lock:
            if self._channel.fileno() < 0:
                return
            known = members(self.leader)  # while it is there, nothing that it started is an orphan of others
            with suppress(OSError):
                self._channel.shutdown(socket.SHUT_RDWR)  # an idle worker ends at this
            if self.exit_code(_IDLE_S) is None:
                ask_to_end(self.leader)
                self.exit_code(_GRACE_S)
            end_all(self.leader, known)
            self.exit_code(_GRACE_S)
            self._channel.close()
            if self._status is not None:
                os.close(self._status)
                self._status = None


def _spawned(
    command: tuple[str, ...], channel: int, files: tuple[int, int], more: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    # -P keeps files of the working folder, such as a torch.py, from being taken for libraries
    worker = (sys.executable, "-P", "-u", "-c", _PROGRAM, str(channel), str(os.getpid()))
    try:
        return subprocess.Popen(
            command or worker,
            stdin=subprocess.DEVNULL,
            stdout=files[0],
            stderr=files[1],
            env={**os.environ, **more},
            pass_fds=() if command else [channel],
            start_new_session=True,
        )
    except OSError as error:
        raise UnavailableError(f"{(command or worker)[0]} cannot be started: {error}") from error
