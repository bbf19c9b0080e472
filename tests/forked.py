"""Python programs for tests, forked from a process that has torch loaded: loading it takes 1.3 s of each otherwise.

``run_forked`` stands in for ``subprocess.run([sys.executable, ...])``, and ``Forked`` for ``subprocess.Popen``, where a
program's own start is not what is tested. Arguments, folder, environment and output are the program's own; what it has
in common with one that is started afresh is everything else, but for what torch reads from the environment while it is
loaded, such as the number of threads. Of each command at least one test starts a Python of its own.
"""

from __future__ import annotations

import functools
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

LOADED = (
    "torch",
    "torch.distributed",
    "torch._dynamo",
    "torch.export",
    "numpy",
    "pydantic",
    "yaml",
    "click",
    "rich.console",
    "pytest",
)
"""Nothing of ours: a program loads it anew, from wherever its own path says."""

LIMIT_S = 280.0

_LONGEST = 1 << 17
"""Of a request, in bytes."""


class Forked:
    """A program that runs; it is no child of this process, and no other program waits for it.

    Args:
        command: What would follow ``python``: ``-m`` and a module, or a file, and its arguments.
        cwd: Its folder; otherwise this process's.
        env: Its environment; otherwise this process's.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.args = list(command)
        self.returncode: int | None = None
        self._output: tuple[str, str] | None = None
        self._folder = tempfile.TemporaryDirectory()
        self._paths = [str(Path(self._folder.name, name)) for name in ("out", "err")]
        self._end, theirs = os.pipe()
        request = {
            "command": self.args,
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "outputs": self._paths,
        }
        try:
            self.pid = _server().fork(request, theirs)
        finally:
            os.close(theirs)

    def wait(self, timeout: float | None = LIMIT_S) -> int:
        """Give its exit code once it has ended; a signal is negative."""
        if self.returncode is None:
            with selectors.DefaultSelector() as ready:
                ready.register(self._end, selectors.EVENT_READ)
                if not ready.select(timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(os.read(self._end, 32))
            os.close(self._end)
        return self.returncode

    def poll(self) -> int | None:
        """Give its exit code, or None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def communicate(self, timeout: float | None = LIMIT_S) -> tuple[str, str]:
        """Give its output, stdout and stderr, once it has ended."""
        self.wait(timeout)
        if self._output is None:
            printed, complaints = (Path(each).read_text(errors="replace") for each in self._paths)
            self._output = printed, complaints
            self._folder.cleanup()
        return self._output

    def kill(self) -> None:
        """End it, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def run_forked(
    module: str,
    *arguments: str,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m module arguments``; its output is text. A ``module`` that ends in ``.py`` is a file.

    Args:
        module: What ``-m`` would name.
        arguments: What follows.
        cwd: Its folder; otherwise this process's.
        env: Its environment; otherwise this process's.
    """
    command = [module, *arguments] if module.endswith(".py") else ["-m", module, *arguments]
    program = Forked(command, cwd=cwd, env=env)
    try:
        printed, complaints = program.communicate()
    finally:
        program.kill()
    return subprocess.CompletedProcess(program.args, program.wait(), printed, complaints)


def run_afresh(
    module: str,
    *arguments: str,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    preexec_fn: Callable[[], object] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the same in a Python that is started for it, and that first calls ``preexec_fn``."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=cwd,
        env=env,
        preexec_fn=preexec_fn,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=LIMIT_S,
    )


class _Server:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _LONGEST)
        self._line.settimeout(LIMIT_S)
        # it ends with this process, whose end of the line is closed then
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()

    def fork(self, request: Mapping[str, Any], end: int) -> int:
        with self._lock:
            socket.send_fds(self._line, [json.dumps(request).encode()], [end])
            return int(self._line.recv(32))


@functools.cache
def _started() -> _Server:
    return _Server()


def _server() -> _Server:
    with _STARTING:
        return _started()


_STARTING = threading.Lock()


# --- in the process that is forked -------------------------------------------------------------------------


def _serve(line: socket.socket) -> dict[str, Any]:
    """Fork for each request; in the fork give the request."""
    running: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(line, selectors.EVENT_READ)
        while True:
            for number in [key.fd for key, _ in selector.select()]:
                if number in running:
                    selector.unregister(number)
                    _tell(number, *running.pop(number))
                    continue
                said, files, *_ = socket.recv_fds(line, _LONGEST, 1)
                if not said:
                    for child, _ in running.values():
                        os.kill(child, signal.SIGKILL)
                    raise SystemExit
                if not (child := os.fork()):
                    line.close()
                    for each in (*running, *(end for _, end in running.values()), *files):
                        os.close(each)
                    return json.loads(said)
                handle = os.pidfd_open(child)
                running[handle] = child, files[0]
                selector.register(handle, selectors.EVENT_READ)
                line.send(str(child).encode())


def _tell(handle: int, child: int, end: int) -> None:
    """Write how a child ended."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with suppress(BrokenPipeError):
        os.write(end, str(code).encode())
    os.close(end)
    os.close(handle)


def _be(request: dict[str, Any]) -> None:
    """Run the program; what it ends with is left to the interpreter."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path in enumerate(request["outputs"], start=1):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - the process's own
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    first, *arguments = request["command"]
    added = [each for each in request["env"].get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = [request["cwd"] if first == "-m" else str(Path(first).parent), *added, *sys.path[1:]]
    if first == "-m":
        sys.argv = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *arguments]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    for name in LOADED:
        __import__(name)
    _be(_serve(socket.socket(fileno=int(sys.argv[1]))))
