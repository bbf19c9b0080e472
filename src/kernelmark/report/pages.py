"""Pages made of headings, sentences, lists and tables: the one kind of document, as Markdown and as plain text.

What stands on a page is whoever's makes it; nothing here knows a run, and nothing here computes. A piece of text is
text from outside and is shown as it is: in Markdown it never opens a table, a link or a mention. :class:`Code`,
:class:`Strong` and :class:`Link` mark pieces, and a tuple of pieces is one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rich.table import Column as RichColumn
from rich.text import Text

from kernelmark.errors import RecordError
from kernelmark.files import replace
from kernelmark.records import FORMAT_VERSION
from kernelmark.report.columns import Align
from kernelmark.report.console import bare_table, plain_text
from kernelmark.report.plain import one_line, visible

__all__ = [
    "DOCUMENT_VERSION",
    "Block",
    "Code",
    "Details",
    "Items",
    "Line",
    "Link",
    "Page",
    "Part",
    "Section",
    "Strong",
    "Table",
    "code",
    "escape",
    "escape_line",
    "fields",
    "page_markdown",
    "page_text",
    "write_report",
]

DOCUMENT_VERSION = FORMAT_VERSION
"""The version of every document that is derived from records: theirs. Nothing reads such a document again."""

_SPECIAL = re.compile(r"[\\`*|~$]|<(?=[A-Za-z/!?])|&(?=[#\w]+;)|\](?=[(\[])|(?<![^\W_])_|_(?![^\W_])")
"""What opens or closes something inside a line: an underscore inside a word does not, nor a bracket alone."""
_OPENS_BLOCK = re.compile(r"^([\[#+>=:-])|^(\d+)([.)])")
_MENTION = re.compile(r"(?<![\w.])@(?=\w)")


@dataclass(frozen=True, slots=True)
class Code:
    """A name or a value, in the letters of code."""

    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    """A piece that stands out."""

    piece: str | Code


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a place on the same page, or to a file beside it."""

    text: str
    target: str


Piece: TypeAlias = str | Code | Strong | Link
Line: TypeAlias = Piece | tuple[Piece, ...]
"""One sentence, item or cell."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table."""

    headings: tuple[Line, ...]
    cells: tuple[tuple[Line, ...], ...]
    aligns: tuple[Align, ...] = ()


@dataclass(frozen=True, slots=True)
class Items:
    """A list of sentences."""

    texts: tuple[Line, ...]
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that stand as they are, such as the end of a program's output."""

    text: str


@dataclass(frozen=True, slots=True)
class Details:
    """Parts that Markdown folds up under a line."""

    summary: str
    parts: tuple[Part, ...]


Part: TypeAlias = Piece | tuple[Piece, ...] | Items | Table | Block | Details


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it."""

    title: Line
    parts: tuple[Part, ...]
    level: int = 2


@dataclass(frozen=True, slots=True)
class Page:
    """A title and its sections; a section without a title stands first."""

    title: str
    sections: tuple[Section, ...] = ()


def fields(pairs: Iterable[tuple[str, Line]]) -> Table:
    """Lay out labelled values, one a line."""
    return Table(("", ""), tuple((Strong(label), value) for label, value in pairs))


def write_report(path: Path, text: str) -> Path:
    """Write ``text`` to ``path``: all of it, or nothing and the file that was there before.

    Raises:
        RecordError: the file cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            # a device or a pipe such as /dev/stdout is written to, never replaced
            path.write_text(text, encoding="utf-8", newline="\n")
        else:
            replace(path.resolve(), text)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}; choose another place") from error
    return path


# --- Markdown --------------------------------------------------------------------------------------------


def page_markdown(page: Page) -> str:
    """Write ``page`` as a Markdown document."""
    parts = [f"# {escape(page.title)}"]
    for section in page.sections:
        parts += [f"{'#' * section.level} {_inline(section.title)}"] if section.title else []
        parts += map(_markdown, section.parts)
    return "\n\n".join(parts) + "\n"


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


def _markdown(part: Part) -> str:
    match part:
        case Items(texts, numbered):
            return "\n".join(
                f"{f'{number}.' if numbered else '-'} {_inline(text, starts=True)}"
                for number, text in enumerate(texts, 1)
            )
        case Table(headings, cells, aligns):
            rules = ["---:" if align is Align.RIGHT else "---" for align in aligns or headings]
            lines = (list(map(_inline, headings)), rules, *(map(_inline, line) for line in cells))
            return "\n".join(f"| {' | '.join(line)} |" for line in lines)
        case Block(text):
            fence = "```"
            while fence in text:
                fence += "`"
            return f"{fence}\n{text}\n{fence}"
        case Details(summary, parts):
            inside = "\n\n".join(map(_markdown, parts))
            return f"<details><summary>{escape(summary)}</summary>\n\n{inside}\n\n</details>"
        case _:
            return _inline(part, starts=True)


def _inline(line: Line, *, starts: bool = False) -> str:
    """Write a line; where it ``starts`` one, nothing at its start opens a list or a heading."""
    pieces = line if isinstance(line, tuple) else (line,)
    shown = ""
    for index, piece in enumerate(pieces):
        match piece:
            case Code(text):
                shown += code(text)
            case Strong(inner):
                # asterisks around nothing that can be seen would stand there as asterisks
                shown += f"**{_inline(inner)}**" if _plain(inner).strip() else _inline(inner)
            case Link(text, target):
                shown += f"[{escape(text)}]({target})"
            case _:
                write = escape_line if starts and index == 0 else escape
                # escaping takes away the blanks between a text and the pieces beside it
                before = " " if index and piece[:1] == " " else ""
                after = " " if index + 1 < len(pieces) and piece[-1:] == " " else ""
                shown += before + write(one_line(piece)) + after
    return shown


# --- plain text ------------------------------------------------------------------------------------------


def page_text(page: Page) -> str:
    """Write ``page`` for a console, as wide as it needs and without colour."""
    parts = [page.title]
    for section in page.sections:
        parts += [_plain(section.title).upper(), *map(_text, section.parts)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _text(part: Part) -> str:
    match part:
        case Items(texts, numbered):
            return "\n".join(
                f"  {f'{number}. ' if numbered else ''}{one_line(_plain(text))}"
                for number, text in enumerate(texts, 1)
            )
        case Table(headings, cells, aligns):
            columns = [
                RichColumn(Text(_plain(heading)), justify=align.value)
                for heading, align in zip(headings, aligns or [Align.LEFT] * len(headings), strict=True)
            ]
            lines = ([Text(one_line(_plain(cell))) for cell in line] for line in cells)
            return plain_text(bare_table(columns, lines, show_header=any(headings)))
        case Block(text):
            return "\n".join(f"  {visible(line)}" for line in text.splitlines())
        case Details(summary, parts):
            return "\n\n".join([f"{summary}:", *map(_text, parts)])
        case _:
            return one_line(_plain(part))


def _plain(line: Line) -> str:
    match line:
        case tuple():
            return "".join(map(_plain, line))
        case Code(text) | Link(text):
            return text
        case Strong(inner):
            return _plain(inner)
        case _:
            return line
