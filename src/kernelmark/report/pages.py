"""Pages made of headings, sentences, lists and tables: the one kind of document, as Markdown, as plain text, as JSON.

What stands on a page is whoever's makes it; nothing here knows a run, and nothing here computes. A piece of text is
text from outside and is shown as it is; :class:`Code`, :class:`Strong` and :class:`Link` mark pieces, and a tuple of
pieces is one sentence. What programs read is the page's ``data``, which makes the JSON document::

    page = Page("Sweep", (Section("", (fields(facts.items()), Table(headings, cells))),), "kernelmark.sweep", data)
    write_page(folder, "sweep", page)                                           # sweep.md, sweep.json
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from kernelmark.errors import RecordError
from kernelmark.files import replace
from kernelmark.records import FORMAT_VERSION
from kernelmark.report.columns import Align
from kernelmark.report.console import plain_text
from kernelmark.report.markdown import code, escape, escape_line, fenced, table
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
    "Picture",
    "Section",
    "Strong",
    "Table",
    "fields",
    "json_document",
    "page_json",
    "page_markdown",
    "page_text",
    "write_page",
    "write_report",
]

DOCUMENT_VERSION = FORMAT_VERSION
"""The version of every document that is derived from records: theirs. Nothing reads such a document again."""

_GAP = 2


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
class Picture:
    """A picture in a file beside the page; a console shows none."""

    text: str
    file: str


@dataclass(frozen=True, slots=True)
class Details:
    """Parts that Markdown folds up under a line."""

    summary: str
    parts: tuple[Part, ...]


Part: TypeAlias = Piece | tuple[Piece, ...] | Items | Table | Block | Picture | Details


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it."""

    title: Line
    parts: tuple[Part, ...]
    level: int = 2


@dataclass(frozen=True, slots=True)
class Page:
    """A title and its sections; a section without a title stands first.

    Args:
        title: The title.
        sections: What stands below it.
        schema: The name of the JSON document.
        data: What programs read, as values that JSON has.
    """

    title: str
    sections: tuple[Section, ...] = field(default=())
    schema: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


def fields(pairs: Iterable[tuple[str, Line]]) -> Table:
    """Lay out labelled values, one a line."""
    return Table(("", ""), tuple((Strong(label), value) for label, value in pairs))


def write_page(folder: Path, stem: str, page: Page) -> tuple[Path, Path]:
    """Write ``stem.json`` and ``stem.md`` into ``folder``; gives both.

    Raises:
        RecordError: a file cannot be written.
    """
    return (
        write_report(folder / f"{stem}.json", page_json(page)),
        write_report(folder / f"{stem}.md", page_markdown(page)),
    )


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


# --- JSON ------------------------------------------------------------------------------------------------


def page_json(page: Page) -> str:
    """Write what ``page`` holds for programs as a JSON document."""
    return json_document(page.schema, page.data)


def json_document(schema: str, data: Mapping[str, Any]) -> str:
    """Write a JSON document with the version that all of them share."""
    told = {"schema": schema, "schema_version": DOCUMENT_VERSION, **data}
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


# --- Markdown --------------------------------------------------------------------------------------------


def page_markdown(page: Page) -> str:
    """Write ``page`` as a Markdown document."""
    parts = [f"# {escape(page.title)}"]
    for section in page.sections:
        parts += [f"{'#' * section.level} {_inline(section.title)}"] if section.title else []
        parts += [_markdown(part) for part in section.parts]
    return "\n\n".join(parts) + "\n"


def _markdown(part: Part) -> str:
    match part:
        case Items(texts, numbered):
            marks = (f"{number}." if numbered else "-" for number in range(1, len(texts) + 1))
            return "\n".join(f"{mark} {_sentence(text)}" for mark, text in zip(marks, texts, strict=True))
        case Table(headings, cells, aligns):
            lines = [[_inline(cell) for cell in line] for line in cells]
            return table([_inline(heading) for heading in headings], lines, aligns)
        case Block(text):
            return fenced(text)
        case Picture(text, file):
            return f"![{escape(text)}]({file})"
        case Details(summary, parts):
            inside = "\n\n".join(map(_markdown, parts))
            return f"<details><summary>{escape(summary)}</summary>\n\n{inside}\n\n</details>"
        case _:
            return _sentence(part)


def _sentence(line: Line) -> str:
    """Write a line that starts one, so that nothing at its start opens a list or a heading."""
    first, *rest = line if isinstance(line, tuple) else (line,)
    if not isinstance(first, str):
        return _inline(line)
    return escape_line(one_line(first)) + _space(first, rest) + _inline(tuple(rest))


def _inline(line: Line) -> str:
    if not isinstance(line, tuple):
        return _piece(line)
    shown = ""
    for index, piece in enumerate(line):
        if isinstance(piece, str):
            before = " " if index and piece[:1] == " " else ""
            shown += before + _piece(piece) + _space(piece, line[index + 1 :])
        else:
            shown += _piece(piece)
    return shown


def _space(piece: str, rest: Sequence[Piece]) -> str:
    """Give the blank between a text and the piece after it, which escaping takes away."""
    return " " if rest and piece[-1:] == " " else ""


def _piece(piece: Piece) -> str:
    match piece:
        case Code(text):
            return code(text)
        case Strong(inner):
            # asterisks around nothing that can be seen would stand there as asterisks
            return f"**{_piece(inner)}**" if _plain(inner).strip() else _piece(inner)
        case Link(text, target):
            return f"[{escape(text)}]({target})"
        case _:
            return escape(one_line(piece))


# --- plain text ------------------------------------------------------------------------------------------


def page_text(page: Page) -> str:
    """Write ``page`` for a console, as wide as it needs and without colour."""
    return "\n\n".join(_texts(page)) + "\n"


def _texts(page: Page) -> Iterator[str]:
    yield page.title
    for section in page.sections:
        if section.title:
            yield _plain(section.title).upper()
        yield from filter(None, map(_text, section.parts))


def _text(part: Part) -> str:
    match part:
        case Items(texts, numbered):
            marks = (f"{number}. " if numbered else "" for number in range(1, len(texts) + 1))
            return "\n".join(
                f"  {mark}{one_line(_plain(text))}" for mark, text in zip(marks, texts, strict=True)
            )
        case Table(headings, cells, aligns):
            return plain_text(_rich(headings, cells, aligns))
        case Block(text):
            return "\n".join(f"  {visible(line)}" for line in text.splitlines())
        case Picture():
            return ""
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


def _rich(headings: Sequence[Line], cells: Sequence[Sequence[Line]], aligns: Sequence[Align]) -> RichTable:
    columns = [
        RichColumn(Text(_plain(heading)), justify=align.value)
        for heading, align in zip(headings, aligns or [Align.LEFT] * len(headings), strict=True)
    ]
    shown = RichTable(
        *columns,
        box=None,
        padding=(0, _GAP, 0, 0),
        pad_edge=False,
        show_header=any(headings),
        header_style="",
    )
    for line in cells:
        shown.add_row(*(Text(one_line(_plain(cell))) for cell in line))
    return shown
