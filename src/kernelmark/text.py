"""Words that every room needs: near names, lists, counts, short forms of errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from kernelmark.errors import KernelmarkError

__all__ = ["counted", "first_line", "in_short", "listing", "message_of", "suggestion"]

_SHOWN = 12  # a longer list is no help in an error message


def listing(names: Iterable[object]) -> str:
    """Write names as ``a, b, c``, cut after a dozen; ``none`` where there are none."""
    known = [str(name) for name in names]
    rest = len(known) - _SHOWN
    return (", ".join(known[:_SHOWN]) or "none") + (f", and {rest} more" if rest > 0 else "")


def suggestion(name: str, known: Iterable[str], *, there_are: str) -> str:
    """Say which names are near ``name``, and which there are: ``did you mean 'K'? dims: B, K, M``.

    Args:
        name: What was written.
        known: What could have been written.
        there_are: What the known names are called.
    """
    names = [str(each) for each in known]  # a StrEnum's member prints as its text, and its repr does not
    # Case first: 'k' for 'K' scores nothing in difflib, and is the most common slip of all.
    near = [n for n in names if n.lower() == name.lower()] or difflib.get_close_matches(name, names, n=3)
    question = f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
    return f"{question}{there_are}: {listing(names)}"


def counted(number: int | None, thing: str) -> str:
    """Write ``1 row`` or ``2 rows``; blank for ``None``."""
    return "" if number is None else f"{number} {thing}{'' if number == 1 else 's'}"


def first_line(text: object) -> str:
    """Give the first line of a text or of an error's message; empty where there is none."""
    return str(text).strip().partition("\n")[0].rstrip()


def in_short(error: BaseException) -> str:
    """Give an error's class and the first line of its message: ``ValueError: no such size``."""
    return f"{type(error).__name__}: {first_line(error)}".removesuffix(": ")


def message_of(error: BaseException) -> str:
    """Give the whole message of an error; one that this package did not write begins with its class."""
    return str(error) if isinstance(error, KernelmarkError) else f"{type(error).__name__}: {error}"
