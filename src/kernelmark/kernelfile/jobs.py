"""How a child process takes its jobs: a line each, on a copy of stdin that nothing it loads can find by number 0.

Its outer frame turns whatever a job raises into an outcome in the job's folder.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import sys
import traceback as tracebacks
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernelmark.kernelfile.handover import Job, Outcome
from kernelmark.text import message_of

__all__ = ["Orders", "ended", "serve"]


class Orders:
    """What the parent says, line by line; it ends when the parent closes it or is gone."""

    def __init__(self) -> None:
        self._lines = os.fdopen(os.dup(0), encoding="utf-8")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    def jobs(self) -> Iterator[Job]:
        """Give each job as it comes."""
        while line := self._lines.readline():
            yield Job.read(Path(json.loads(line)["folder"]))

    def seed(self) -> int:
        """Wait for the seed that the parent draws when it hears that the timing is over."""
        return int(json.loads(self._lines.readline())["seed"])


def serve(carry_out: Callable[[Job, Orders], Outcome]) -> None:
    """Carry out jobs until there are no more; between two of them, memory is given back."""
    faulthandler.enable(all_threads=False)  # there is a thread a core that flushes, and each would be shown
    orders = Orders()
    for job in orders.jobs():
        carry_out(job, orders).write(job.folder)
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        _let_go()


def ended(error: BaseException, notes: dict[str, list[str]] | None = None) -> Outcome:
    """Turn what stopped a job into its outcome."""
    text = "".join(tracebacks.format_exception(error))
    return Outcome(type(error).__name__, _message(error), text, notes or {})


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r})"
    return message_of(error)


def _let_go() -> None:
    """Forget the files of the job, what torch compiled of them, and the memory they held."""
    from kernelmark.harness.loading import forget_modules

    forget_modules()
    dynamo: Any = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        # else the next size is compiled with dynamic shapes, because the last one was another
        dynamo.reset()
    gc.collect()
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
