"""Pages made of headings, sentences, lists and tables, written as Markdown or as plain text: content once, two forms.

What stands on a page is whoever's makes it; nothing here knows a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.table import Column as RichColumn
from rich.table import Table as RichTable
from rich.text import Text

from kernelmark.report.columns import Align
from kernelmark.report.console import plain_text
from kernelmark.report.markdown import escape, escape_line, table
from kernelmark.report.plain import one_line, visible

__all__ = ["Block", "Items", "Page", "Section", "Table", "page_markdown", "page_text"]

_GAP = 2


@dataclass(frozen=True, slots=True)
class Table:
    """A table of plain texts."""

    headings: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    aligns: tuple[Align, ...] = ()


@dataclass(frozen=True, slots=True)
class Items:
    """A list of sentences."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """What somebody else wrote, line by line as it is: a compiler's output, a traceback."""

    text: str


Part = str | Items | Table | Block


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it: sentences, lists, tables."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A title and its sections; a section without a title stands first."""

    title: str
    sections: tuple[Section, ...] = field(default=())


def page_markdown(page: Page) -> str:
    """Write ``page`` as a Markdown document."""
    parts = [f"# {escape(page.title)}"]
    for section in page.sections:
        parts += [f"## {escape(section.title)}"] if section.title else []
        parts += [_markdown(part) for part in section.parts]
    return "\n\n".join(parts) + "\n"


def page_text(page: Page) -> str:
    """Write ``page`` for a console, as wide as it needs and without colour."""
    return "\n\n".join(_texts(page)) + "\n"


def _texts(page: Page) -> Iterator[str]:
    yield page.title
    for section in page.sections:
        if section.title:
            yield section.title.upper()
        yield from map(_text, section.parts)


def _markdown(part: Part) -> str:
    if isinstance(part, str):
        return escape_line(one_line(part))
    if isinstance(part, Items):
        return "\n".join(f"- {escape_line(one_line(text))}" for text in part.texts)
    if isinstance(part, Block):
        fence = "```"
        while fence in part.text:
            fence += "`"
        return f"{fence}\n{part.text}\n{fence}"
    cells = [[escape(one_line(cell)) for cell in line] for line in part.cells]
    return table([escape(heading) for heading in part.headings], cells, part.aligns)


def _text(part: Part) -> str:
    if isinstance(part, str):
        return one_line(part)
    if isinstance(part, Items):
        return "\n".join(f"  {one_line(text)}" for text in part.texts)
    if isinstance(part, Block):
        return "\n".join(f"  {visible(line)}" for line in part.text.splitlines())
    return plain_text(_rich(part.headings, part.cells, part.aligns))


def _rich(headings: Sequence[str], cells: Sequence[Sequence[str]], aligns: Sequence[Align]) -> RichTable:
    columns = [
        RichColumn(Text(heading), justify=align.value)
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
        shown.add_row(*(Text(one_line(cell)) for cell in line))
    return shown
