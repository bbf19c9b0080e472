"""Runs a command's work in a worker, so that a compiler that never ends can be ended, and its crash be told.

A pass of MLIR's holds the interpreter while it runs: no other thread of the process could end it, and neither could
Ctrl-C. This module knows processes and exit codes, and nothing of what is compiled.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any

import click

from kernelmark.errors import CrashedError, KernelmarkError, TimeLimitError
from kernelmark.isolation import READY, Channel, Limits, Worker, importing_the_same

__all__ = ["end_by_interrupt", "run_watched"]


def run_watched(work: Callable[[Any, Channel], None], request: object, *, limit_s: float, hint: str) -> None:
    """Call ``work`` in a worker that is ended where it has not told :data:`READY` within ``limit_s``.

    What it prints goes where this process's own output does, and its errors are raised here.

    Args:
        work: Tells what it is about to do, and :data:`READY` where nothing is left to compile.
        request: What it is called with.
        limit_s: Seconds.
        hint: What a user can do where that is not enough.

    Raises:
        CrashedError: its process died; with what it was about to do.
        TimeLimitError: it did not end in time.
        click.exceptions.Exit: it called ``sys.exit``.
        BaseException: whatever it raised.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    limits = Limits(None, start_s=limit_s)
    with Worker(work, limits, environment=importing_the_same(), shown=True) as worker:
        ended = worker.call(request)
    if ended.failure is not None:
        error = ended.failure.error
        if isinstance(error, SystemExit):
            raise click.exceptions.Exit(error.code if isinstance(error.code, int) else int(bool(error.code)))
        if not isinstance(error, KernelmarkError):
            click.echo(ended.failure.traceback, err=True)
        raise error
    if ended.death is not None and ended.death.timed_out:
        raise TimeLimitError(
            f"{ended.stage or 'starting'}: compiling has not ended within {limit_s:g} s, and was ended; {hint}"
        )
    if ended.death is not None:
        at = "while it ran" if READY in ended.stages else f"at {ended.stage or 'starting'}"
        raise CrashedError(f"{ended.death} ({at})")


def end_by_interrupt() -> None:
    """Let this worker, where it is asked to end, end as if somebody had pressed Ctrl-C: its run says so then."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
