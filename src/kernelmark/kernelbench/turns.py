"""Hands out the turn to time: one process has it, and all others that a server started are held meanwhile.

A process asks through a socket that its environment names (:mod:`kernelmark.timing.turn`). Its turn ends when it
says so, when it dies, and when the server no longer knows it.
"""

from __future__ import annotations

import select
import shutil
import socket
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kernelmark.errors import UnavailableError
from kernelmark.holding import Held
from kernelmark.prefork import Prefork
from kernelmark.timing.turn import TURN_VARIABLE

__all__ = ["Turns"]

_LOOK_S = 0.5


class Turns:
    """Who may time now; use it in a ``with`` block around the runs of ``server``.

    Raises:
        UnavailableError: no socket can be made in the folder for temporary files.
    """

    def __init__(self, server: Prefork) -> None:
        self._server = server
        self._turn = threading.Lock()
        # not in the run's folder: the path of a socket may have 107 bytes
        self._folder = Path(tempfile.mkdtemp(prefix="kernelmark-"))
        self._path = self._folder / "turn"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(str(self._path))
        except OSError as error:
            self.close()
            raise UnavailableError(
                f"{self._path}: no socket can be made there ({error}); set TMPDIR to a folder with a shorter"
                " name, or leave out --jobs"
            ) from error
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def variables(self, number: int) -> Mapping[str, str]:
        """Give what the environment of the process with this number must have."""
        return {TURN_VARIABLE: f"{number}:{self._path}"}

    def close(self) -> None:
        """Hand out no more turns."""
        # closing alone does not wake a thread that waits in accept
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        with line, suppress(OSError, ValueError):
            with line.makefile("r", encoding="utf-8") as asked:
                number = int(asked.readline())
            with self._server.waiting(number):
                self._turn.acquire()
            try:
                with self._server.alone(number) as held:
                    line.sendall(f"{_note(held)}\n".encode())
                    self._wait_for_the_end(line, number)
            finally:
                self._turn.release()

    def _wait_for_the_end(self, line: socket.socket, number: int) -> None:
        """Wait until the other end is closed: by its process, its death, or its removal."""
        while self._server.runs(number):
            ready, _, _ = select.select([line], [], [], _LOOK_S)
            if ready and not line.recv(64):
                return


def _note(held: Held) -> str:
    count = len(held.leaders)
    if not count:
        return ""
    others = "another kernel" if count == 1 else f"{count} other kernels"
    unheld = f"; {len(held.going_on)} of them went on all the same" if held.going_on else ""
    return f"the processes of {others} were held while this was timed{unheld}"
