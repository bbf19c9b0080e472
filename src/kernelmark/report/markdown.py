"""How Markdown is escaped: text from outside is never able to open a table, a link or a mention."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kernelmark.report.columns import Align
from kernelmark.report.plain import visible

__all__ = ["code", "escape", "escape_line", "fenced", "table"]

_SPECIAL = re.compile(r"[\\`*|~$]|<(?=[A-Za-z/!?])|&(?=[#\w]+;)|\](?=[(\[])|(?<![^\W_])_|_(?![^\W_])")
"""What opens or closes something inside a line: an underscore inside a word does not, nor a bracket alone."""
_OPENS_BLOCK = re.compile(r"^([\[#+>=:-])|^(\d+)([.)])")
_MENTION = re.compile(r"(?<![\w.])@(?=\w)")


def escape(text: str) -> str:
    """Write ``text`` so that Markdown shows it as it is inside a line, also in a table's cell."""
    marked = _SPECIAL.sub(lambda found: f"\\{found[0]}", visible(text).strip())
    return _MENTION.sub("@<!-- -->", marked)


def escape_line(text: str) -> str:
    """Write ``text`` so that Markdown shows it as it is where a line or the text of a list item starts."""
    marked = escape(text)
    opens = _OPENS_BLOCK.match(marked)
    if opens is None:
        return marked
    number = opens[2] or ""
    return f"{number}\\{marked[len(number) :]}"


def code(text: str) -> str:
    """Write ``text`` as code where code can hold it, in a table's cell too, else as escaped text."""
    shown = visible(text)
    if not shown or shown != shown.strip() or any(char in shown for char in "`|\\"):
        return escape(text)
    return f"`{shown}`"


def table(headings: Sequence[str], cells: Iterable[Sequence[str]], aligns: Sequence[Align] = ()) -> str:
    """Lay out a table; the texts are escaped already."""
    rules = ["---:" if align is Align.RIGHT else "---" for align in aligns] or ["---"] * len(headings)
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, rules, *cells))


def fenced(text: str) -> str:
    """Write ``text`` as a block of code, whatever stands in it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
