"""What the exit code of ``kernelmark`` says."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """The exit codes, the same for every command."""

    OK = 0
    FAILED = 1
    """A check, a gate or a finding failed."""
    USAGE = 2
    """What was asked for cannot be done as asked: an option, a manifest, a configuration."""
    ENVIRONMENT = 3
    """This machine lacks something, or a stored run cannot be read or written."""
    CRASHED = 4
    """Something that kernelmark did not expect."""
