"""A fork server: it has imported its libraries once, and forks a worker for each request.

A kernel's process takes 1.2 s to its first result from here and 3.8 s from nothing, and a suite has 250 of them. The
server forks before any library has started a thread, and never runs a request itself. It ends when whoever started
it closes the line, and kills what still runs.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module

from kernelmark.errors import UnavailableError
from kernelmark.isolation.child import die_with, serve
from kernelmark.isolation.processes import MARK, Leader, end_all, new_mark

__all__ = ["ForkServer"]

_START_S = 120.0
_GRACE_S = 2.0
_ONE_REQUEST = 1 << 16
_PROGRAM = (
    "import sys; from kernelmark.isolation.forkserver import main; main(int(sys.argv[1]), sys.argv[2:])"
)


class ForkServer:
    """The server, seen from the process that sends it requests; close it, or use it in a ``with`` block.

    Args:
        preload: Modules that are imported once, before the first request; one that is not installed is left out,
            and whoever needs it says what to install.
        environment: What the server's environment has beside this process's own.

    Raises:
        UnavailableError: the server cannot import a module; with what it wrote.
    """

    def __init__(self, preload: Sequence[str] = (), *, environment: Mapping[str, str] | None = None) -> None:
        self._lock = threading.Lock()
        self._line, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno()), *preload],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # the mark of each worker has the length of this one, and is written over it
            env={**os.environ, **(environment or {}), MARK: new_mark()},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._line.settimeout(_START_S)
        if not self._read():
            self._process.kill()
            said = self._process.communicate()[1].decode(errors="replace").strip()
            self.close()
            raise UnavailableError(f"the process that starts the workers could not start:\n{said[-2000:]}")

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fork(self, files: Sequence[int], environment: Mapping[str, str]) -> tuple[int, int]:
        """Start a worker; give its number, and a pipe that its exit status is written to.

        Args:
            files: For its channel, its stdout and its stderr.
            environment: What its environment has beside the server's, the mark among it.

        Raises:
            UnavailableError: the server is gone.
        """
        reading, writing = os.pipe()
        try:
            with self._lock:
                socket.send_fds(
                    self._line, [json.dumps(dict(environment)).encode() + b"\n"], [writing, *files]
                )
                return int(self._read()), reading
        except (OSError, ValueError) as error:
            os.close(reading)
            raise UnavailableError(
                "the process that starts the workers ended; run the command again"
            ) from error
        finally:
            os.close(writing)

    def close(self) -> None:
        """End the server and whatever it still runs."""
        self._line.close()
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _read(self) -> bytes:
        """Read one short answer; empty where there is none."""
        with suppress(OSError):
            return self._line.recv(64)
        return b""


# --- the server ------------------------------------------------------------------------------------


def main(number: int, preload: Sequence[str]) -> None:
    """Be the server, whose line has this number among its files."""
    line = socket.socket(fileno=number)
    for each in preload:
        with suppress(ModuleNotFoundError):  # where it is needed, a worker says what to install
            import_module(each)
    running: dict[int, tuple[int, str]] = {}
    # A child's end arrives as a byte in a pipe, so that one wait is for both: requests and ends.
    ends, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    line.sendall(b"ready")
    with selectors.DefaultSelector() as selector:
        selector.register(line, selectors.EVENT_READ)
        selector.register(ends, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if ends in ready:
                os.read(ends, 4096)
                _reap(running)
            if line.fileno() in ready:
                request, files = _receive(line)
                if not request:
                    # whoever asked is gone, and may have left some held
                    for pid, (_, mark) in running.items():
                        end_all(Leader(pid, mark))
                    return
                _fork(json.loads(request), files, line, running)


def _receive(line: socket.socket) -> tuple[bytes, list[int]]:
    request, files, _, _ = socket.recv_fds(line, _ONE_REQUEST, 4)
    while request and not request.endswith(b"\n"):
        more = line.recv(_ONE_REQUEST)
        request = request + more if more else b""
    for fd in files:
        os.set_inheritable(fd, False)
    return request, files


def _fork(
    environment: dict[str, str], files: list[int], line: socket.socket, running: dict[int, tuple[int, str]]
) -> None:
    status, channel, output, errors = files
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            with suppress(OSError):
                os.setpgid(0, 0)
            die_with(server)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            line.close()
            for fd in (status, *(other for other, _ in running.values())):
                os.close(fd)
            for fd, number in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (errors, 2)):
                os.dup2(fd, number)
                os.close(fd)
            _write_mark(environment[MARK])
            os.environ.update(environment)
            serve(socket.socket(fileno=channel))
            code = 0
        finally:
            os._exit(code)  # house: a forked child must not run the code of its parent
    with suppress(OSError):  # in both processes, since either may be first
        os.setpgid(pid, pid)
    for fd in (channel, output, errors):
        os.close(fd)
    running[pid] = status, environment[MARK]
    line.sendall(str(pid).encode())


def _write_mark(mark: str) -> None:
    """Write a mark over the server's own where the system shows it: what a process is forked with, not started."""
    if sys.platform == "linux":
        import ctypes

        library = ctypes.CDLL(None)
        library.getenv.restype = ctypes.c_void_p
        place = library.getenv(MARK.encode())
        if place and len(ctypes.string_at(place)) == len(mark):
            ctypes.memmove(place, mark.encode(), len(mark))


def _reap(running: dict[int, tuple[int, str]]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        if pid in running:
            pipe, _ = running.pop(pid)
            with suppress(OSError):  # nobody wants to know
                os.write(pipe, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(pipe)
