"""Errors and counts in few words."""

from __future__ import annotations

from kernelmark.errors import KernelmarkError

__all__ = ["counted", "first_line", "in_short", "message_of"]


def counted(number: int | None, thing: str) -> str:
    """Write ``1 row`` or ``2 rows``; blank for ``None``."""
    return "" if number is None else f"{number} {thing}{'' if number == 1 else 's'}"


def first_line(text: object) -> str:
    """Give the first line of a text or of an error's message; empty where there is none."""
    return str(text).strip().partition("\n")[0].rstrip()


def in_short(error: BaseException) -> str:
    """Give an error's class and the first line of its message: ``ValueError: no such size``."""
    line = first_line(error)
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def message_of(error: BaseException) -> str:
    """Give the whole message of an error; one that this package did not write begins with its class."""
    return str(error) if isinstance(error, KernelmarkError) else f"{type(error).__name__}: {error}"
