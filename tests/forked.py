"""Python programs for tests, forked from a process that has torch loaded: loading it takes 1.3 s of each otherwise.

``run_forked`` stands in for ``subprocess.run([sys.executable, ...])`` where a program's own start is not what is
tested. Arguments, folder, environment and output are the program's own; what it has in common with
one that is started afresh is everything else, but for what torch reads from the environment while it is loaded, such
as the number of threads. Of each command at least one test starts a Python of its own.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LOADED = ("torch", "numpy", "pydantic", "yaml", "click", "rich.console", "pytest")
"""Nothing of ours: a program loads it anew, from wherever its own path says."""

LIMIT_S = 120.0


def run_forked(
    module: str,
    *arguments: str,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m module arguments``; its output is text.

    Args:
        module: What ``-m`` would name.
        arguments: What follows.
        cwd: Its folder; otherwise this process's.
        env: Its environment; otherwise this process's.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        request = {
            "module": module,
            "arguments": arguments,
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "out": str(out),
            "err": str(err),
        }
        code = _server().ask(request)
        return subprocess.CompletedProcess(
            [module, *arguments], code, out.read_text(errors="replace"), err.read_text(errors="replace")
        )


class _Server:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._line = ours.makefile("rw", encoding="utf-8")
        ours.settimeout(LIMIT_S)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        ours.close()
        atexit.register(self._process.kill)

    def ask(self, request: Mapping[str, Any]) -> int:
        self._line.write(json.dumps(request) + "\n")
        self._line.flush()
        return int(self._line.readline())


@functools.cache
def _server() -> _Server:
    return _Server()


# --- in the process that is forked -------------------------------------------------------------------------


def _serve(number: int) -> None:
    for name in LOADED:
        __import__(name)
    line = socket.socket(fileno=number).makefile("rw", encoding="utf-8")
    for text in line:
        request = json.loads(text)
        sys.stdout.flush()
        sys.stderr.flush()
        if not (child := os.fork()):
            os._exit(_be(request, number))
        _, status = os.waitpid(child, 0)
        line.write(f"{os.waitstatus_to_exitcode(status)}\n")
        line.flush()


def _be(request: dict[str, Any], number: int) -> int:
    os.close(number)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, (path, flags) in enumerate(
        [
            (os.devnull, os.O_RDONLY),
            (request["out"], os.O_WRONLY | os.O_CREAT),
            (request["err"], os.O_WRONLY | os.O_CREAT),
        ]
    ):
        opened = os.open(path, flags)
        os.dup2(opened, stream)
        os.close(opened)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - the process's own
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    added = [each for each in request["env"].get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.path[:] = [request["cwd"], *added, *sys.path[1:]]
    sys.argv = [request["module"], *request["arguments"]]
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - as the interpreter's own outermost frame
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
