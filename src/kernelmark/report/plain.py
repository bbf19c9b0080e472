"""Text from outside, made safe to show: no line breaks, nothing that moves a cursor or turns the text around.

Names, reasons and messages come from implementations and their exceptions. Escaping for one format
(Markdown, CSV, a terminal's markup) belongs to that format's renderer, not here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

__all__ = ["grouped", "one_line", "shortened", "visible"]

_UNSHOWABLE = frozenset({"Cc", "Cn", "Cs", "Zl", "Zp"})
"""Controls, code points that mean nothing (some of which XML forbids), halves of a pair, line ends."""
_TURNS_TEXT = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def visible(text: str) -> str:
    r"""Write ``text`` with everything that cannot be seen as an escape, such as ``\x1b`` or ``\n``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, text))


def one_line(text: str) -> str:
    """Join the lines of ``text``, so that a message of several lines stays readable in one."""
    lines = [visible(" ".join(line.split())) for line in text.splitlines()]
    joined = ""
    for line in filter(None, lines):
        joined += line if not joined else f"{' ' if joined[-1] in ':;,' else '; '}{line}"
    return joined


def shortened(items: Iterable[str], *, most: int = 5) -> str:
    """List ``items`` with commas, the first ``most`` of them by name and the rest as a number."""
    names = list(items)
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])


def grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Collect the second of each pair under its first, none twice."""
    found: dict[str, dict[str, None]] = {}
    for key, value in pairs:
        found.setdefault(key, {})[value] = None
    return {key: list(values) for key, values in found.items()}


def _shown(char: str) -> str:
    hidden = unicodedata.category(char) in _UNSHOWABLE or char in _TURNS_TEXT
    return char.encode("unicode_escape").decode() if hidden else char
