"""What a command's exit code means, and which error leads to which; one table for all commands."""

from __future__ import annotations

from enum import IntEnum

from kernelmark.errors import (
    CrashedError,
    KernelmarkError,
    ModelError,
    RecordError,
    TimingError,
    UnavailableError,
    UsageError,
    VerificationError,
)

__all__ = ["ExitCode", "exit_code_for"]


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FAILED = 1
    """Something was found to be wrong: an answer, a reading, a manifest."""
    USAGE = 2
    """Nothing could be run as it was asked for."""
    ENVIRONMENT = 3
    """This machine lacks something, or a file cannot be read or written."""
    CRASHED = 4
    """No answer to check: what was run died, hung or was killed, or a model did not get through the compiler."""
    BUG = 70
    """kernelmark itself went wrong; the traceback is on stderr."""
    INTERRUPTED = 130
    """Stopped from the keyboard, as shells number it."""
    PIPE_CLOSED = 141
    """Whoever read the output stopped reading, as shells number it."""


_BY_ERROR: dict[type[KernelmarkError], ExitCode] = {
    UsageError: ExitCode.USAGE,
    UnavailableError: ExitCode.ENVIRONMENT,
    RecordError: ExitCode.ENVIRONMENT,
    VerificationError: ExitCode.FAILED,
    CrashedError: ExitCode.CRASHED,
    ModelError: ExitCode.CRASHED,
    TimingError: ExitCode.FAILED,
    KernelmarkError: ExitCode.FAILED,
}


def exit_code_for(error: KernelmarkError) -> ExitCode:
    """Give the exit code of ``error``: that of the nearest class in the table."""
    return next(_BY_ERROR[each] for each in type(error).__mro__ if each in _BY_ERROR)
