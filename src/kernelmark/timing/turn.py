"""The turn to time: a process waits here until whoever started it has put everything else to rest.

Where processes share a machine, one of them hands out turns and names its socket in the environment. Without that
there is nobody to wait for. Who hands them out, and what is held meanwhile, is not known here.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from kernelmark.errors import UnavailableError

__all__ = ["TURN_VARIABLE", "turn_to_time"]

TURN_VARIABLE = "KERNELMARK_TURN"
"""``NUMBER:PATH``: what this process is called, and the socket of the one who hands out turns."""

_inside: list[str] = []
"""The note on the turn that this process has; empty without one."""


@contextmanager
def turn_to_time() -> Iterator[str]:
    """Have the turn inside the ``with`` block; gives a note on what is held meanwhile, blank for nothing.

    The turn ends with the block, and with the process. Inside another one it is that one.

    Raises:
        UnavailableError: whoever hands out the turns is gone, so that nothing would be held.
    """
    address = os.environ.get(TURN_VARIABLE)
    if not address or _inside:
        yield _inside[0] if _inside else ""
        return
    number, _, path = address.partition(":")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        note = _ask(line, number, path)
        _inside.append(note)
        try:
            yield note
        finally:
            _inside.clear()


def _ask(line: socket.socket, number: str, path: str) -> str:
    try:
        line.connect(path)
        line.sendall(f"{number}\n".encode())
        with line.makefile("r", encoding="utf-8") as answers:
            answer = answers.readline()
    except OSError as error:
        raise UnavailableError(_GONE.format(path, error.strerror)) from error
    if not answer.endswith("\n"):
        raise UnavailableError(_GONE.format(path, "it ended"))
    return answer.rstrip("\n")


_GONE = "whoever hands out the turns to time at {} does not answer ({}); run the command again"
