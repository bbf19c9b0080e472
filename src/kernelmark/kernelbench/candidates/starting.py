"""How a candidate's processes are started: by a fork from a server that has torch already, or each from nothing.

Where a GPU's driver may have been opened in the server, nothing that was forked from it could use the device.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from kernelmark.prefork import Finished, Limits, Prefork
from kernelmark.process import run_child

__all__ = ["Starter", "starter_for"]

_PROCESS = "kernelmark.kernelbench.candidates.process"
_PRELOAD = (
    "torch",
    "torch._dynamo",
    "kernelmark.harness.runner",
    "kernelmark.kernelbench.candidates.answers",
    "kernelmark.verify.verdict",
)
"""Imported before the fork; inductor is not, since it starts threads."""


class Starter(Protocol):
    """Runs a process with limits, to its end."""

    def run(self, arguments: Sequence[str], *, log: Path, limits: Limits) -> Finished:
        """Run one; what it started is gone when this returns."""
        ...


class _FromNothing:
    """Starts an interpreter for each process; the limit of memory is not kept, since a GPU maps more than there is."""

    def run(self, arguments: Sequence[str], *, log: Path, limits: Limits) -> Finished:
        command = [sys.executable, "-P", "-u", "-m", _PROCESS, *arguments]
        ended = run_child(command, log=log, limit_s=limits.time_s)
        return Finished(ended.code or 0, ended.code is None, ended.output, "", ended.wall_s)


@contextmanager
def starter_for(device: str) -> Iterator[Starter]:
    """Give what starts processes for ``device``."""
    if device != "cpu":
        yield _FromNothing()
        return
    with Prefork(f"{_PROCESS}:main", preload=_PRELOAD) as server:
        yield server
