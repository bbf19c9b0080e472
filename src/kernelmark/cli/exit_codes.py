"""What a command's exit code means, and what leads to which: one table over ``records.Fate`` for all commands."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelmark.records.fate import Fate

__all__ = ["ExitCode", "exit_code_for", "exit_code_of"]


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


_BY_CAUSE: dict[str | None, ExitCode] = {
    None: ExitCode.OK,
    "usage": ExitCode.USAGE,
    **dict.fromkeys(("raised", "wrong", "doubt", "peer"), ExitCode.FAILED),
    **dict.fromkeys(("unavailable", "storage", "memory"), ExitCode.ENVIRONMENT),
    **dict.fromkeys(("refused", "limit", "died"), ExitCode.CRASHED),
    "bug": ExitCode.BUG,
    "interrupted": ExitCode.INTERRUPTED,
    "pipe closed": ExitCode.PIPE_CLOSED,
}
"""By ``records.Cause`` in words, since a command that only shows its help loads no records."""


def exit_code_for(error: BaseException | None) -> ExitCode:
    """Give the exit code of what ``error`` means; without an error, of what was done as asked."""
    from kernelmark.records.fate import Fate

    return exit_code_of(Fate.of(error))


def exit_code_of(fate: Fate) -> ExitCode:
    """Give the exit code of what became of what was asked for."""
    # what an implementation runs out of is its own failure, and no lack of the machine's
    if fate.cause == "memory" and fate.check == "failed":
        return ExitCode.FAILED
    return _BY_CAUSE[fate.cause]
