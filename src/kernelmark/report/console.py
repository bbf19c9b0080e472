"""Shows rows on a terminal: one table per op, the cases as headings, the notes under their case.

A narrow terminal loses columns from the least to the most important; name, check, device busy and ratio
always stay. Nothing is told by colour alone.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from html import escape
from itertools import chain

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Column as RichColumn
from rich.table import Table
from rich.text import Text

from kernelmark.records import Check, Role, Row, StoredRun
from kernelmark.report.columns import CHECK_MARKS, NOTES, Column, filled_columns
from kernelmark.report.facts import run_facts
from kernelmark.report.notes import mixed_caches, row_notes, uneven_blocks
from kernelmark.report.plain import grouped, one_line, visible
from kernelmark.report.remarks import check_counts, remarks
from kernelmark.report.rows import by_op, overview_lines, param_texts, time_scale

__all__ = ["bare_table", "console_report", "console_table", "console_text", "html_table", "plain_text"]

_GAP = 2
_INDENT = 2
_NO_LIMIT = 10_000
_FOLDS = {"ratio": 20, "implementation": 8, "check": 13}
"""Columns that fold where a terminal is too narrow for what is always shown, and down to what width."""

_CHECK_STYLES = {
    Check.VERIFIED: "green",
    Check.PARTIAL: "green",
    Check.CUSTOM: "green",
    Check.UNVERIFIED: "bold yellow",
    Check.NONCOMPARABLE: "bold yellow",
    Check.FAILED: "bold red",
    Check.UNAVAILABLE: "dim",
}
_VERDICT_STYLES = {"faster": "green", "slower": "red"}


def console_table(rows: Iterable[Row], width: int | None = None) -> RenderableType:
    """Lay ``rows`` out for a terminal of ``width`` columns; without a width nothing is dropped."""
    rows = tuple(rows)
    found = [_look_here("caches", mixed)] if (mixed := mixed_caches(rows)) else []
    found += [_look_here("uneven blocks", text) for text in uneven_blocks(rows)]
    return Group(*_tables(rows, width), *([Text(), *found] if found else ()))


def console_report(run: StoredRun, width: int | None = None) -> RenderableType:
    """Lay out a whole run: how it was made, its rows, what they mean, and what makes them suspicious."""
    facts = Table.grid(padding=(0, _GAP))
    for label, text in run_facts(run):
        facts.add_row(Text(label, style="dim"), Text(one_line(text)))
    return Group(facts, Text(), *_tables(run.rows, width), Text(), *_closing(run))


def console_text(rows: Iterable[Row], width: int | None = None) -> str:
    """Write ``rows`` as :func:`console_table` lays them out, without colour."""
    return plain_text(console_table(rows, width), width)


def html_table(rows: Iterable[Row]) -> str:
    """Write ``rows`` as a notebook shows them."""
    return f"<pre>{escape(console_text(rows))}</pre>"


def plain_text(renderable: RenderableType, width: int | None = None) -> str:
    """Write what a terminal without colour would show, without trailing blanks."""
    stream = io.StringIO()
    console = Console(
        file=stream, width=width or _NO_LIMIT, color_system=None, force_terminal=False, legacy_windows=False
    )
    console.print(renderable, soft_wrap=False)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def bare_table(columns: Iterable[RichColumn], lines: Iterable[Iterable[Text]], *, show_header: bool) -> Table:
    """Lay out ``lines`` of cells without rules."""
    padding = (0, _GAP, 0, 0)
    table = Table(
        *columns, box=None, padding=padding, pad_edge=False, show_header=show_header, header_style=""
    )
    for line in lines:
        table.add_row(*line)
    return table


def _tables(rows: Iterable[Row], width: int | None) -> Iterator[RenderableType]:
    ops = by_op(rows)
    if not ops:
        yield Text("no rows")
    for number, (op, cases) in enumerate(ops.items()):
        if number:
            yield Text()
        if op is not None:
            yield Text(visible(op), style="bold underline")
        yield from _cases(cases, width)


def _cases(cases: dict[str, list[Row]], width: int | None) -> Iterator[RenderableType]:
    columns = [column for column in filled_columns(chain(*cases.values())) if column is not NOTES]
    columns, widths = _fit(columns, list(cases.values()), width)
    for number, (case, rows) in enumerate(cases.items()):
        heading, scale = Text(visible(case), style="bold"), time_scale(rows)
        if params := param_texts(rows[0].params):
            told = ", ".join(f"{name}={value}" for name, value in params.items())
            heading.append(f"  {told}", style="not bold dim")
        yield heading
        headings = (
            RichColumn(
                Text(column.heading, style="dim"),
                justify=column.align.value,
                width=widths[column.key],
                overflow="fold",
            )
            for column in columns
        )
        lines = (
            [Text(column.text(row, scale), style=_style(column, row)) for column in columns] for row in rows
        )
        yield Padding(bare_table(headings, lines, show_header=number == 0), (0, 0, 0, _INDENT))
        notes = ((note, visible(row.implementation)) for row in rows for note in row_notes(row))
        for note, names in grouped(notes).items():  # each once, with all that it is about
            told = Text.assemble((f"{', '.join(names)}: ", "dim"), note)
            yield Padding(told, (0, 0, 0, 2 * _INDENT))


def _fit(
    columns: list[Column], cases: list[list[Row]], limit: int | None
) -> tuple[list[Column], dict[str, int]]:
    """Drop columns until the rest fits in ``limit``; the widths hold for all cases of the op."""
    shown = [(row, time_scale(rows)) for rows in cases for row in rows]
    widths = {
        column.key: max(_heading_width(column.heading), *(cell_len(column.text(*each)) for each in shown))
        for column in columns
    }
    while limit is not None and _total(columns, widths) > limit:
        least = max(columns, key=lambda column: column.drop)
        if not least.drop:
            break
        columns = [column for column in columns if column is not least]
    return columns, widths if limit is None else _squeeze(columns, widths, limit)


def _squeeze(columns: list[Column], widths: dict[str, int], limit: int) -> dict[str, int]:
    """Narrow the columns that may fold until the table fits, if it can; numbers are never folded."""
    narrow = dict(widths)
    for key, least in _FOLDS.items():
        excess = _total(columns, narrow) - limit
        if excess > 0 and narrow.get(key, 0) > least:
            narrow[key] = max(least, narrow[key] - excess)
    return narrow


def _total(columns: list[Column], widths: dict[str, int]) -> int:
    return _INDENT + sum(widths[column.key] + _GAP for column in columns) - _GAP


def _heading_width(heading: str) -> int:
    """Give the smallest width at which the heading takes at most two lines."""
    words = heading.split()
    splits = [(" ".join(words[:cut]), " ".join(words[cut:])) for cut in range(len(words))]
    return min(max(cell_len(first), cell_len(second)) for first, second in splits)


def _style(column: Column, row: Row) -> str:
    if column.key == "check":
        return _CHECK_STYLES[row.check]
    if column.key == "ratio" and row.ratio is not None:
        return _VERDICT_STYLES.get(row.ratio.verdict, "")
    if column.key == "implementation" and row.role is Role.OURS:
        return "bold"
    return ""


def _closing(run: StoredRun) -> Iterator[Text]:
    yield from map(Text, overview_lines(run.rows))
    counts = check_counts(run.rows)
    if counts:
        yield Text(f"{len(run.rows)} rows: " + ", ".join(f"{n} {check}" for check, n in counts.items()))
    if any(row.timing for row in run.rows if row.check in CHECK_MARKS):
        yield Text("! timed, but nothing vouches for its answers: it has no ratio")
    if any(row.timing for row in run.rows):
        yield Text("device busy, latency and gap are medians of the samples")
    if any(row.ratio for row in run.rows):
        yield Text("ratio: baseline time over our time, so above 1 ours is faster")
    for remark in remarks(run):
        yield _look_here(remark.subject, remark.text)


def _look_here(subject: str, text: str) -> Text:
    return Text.assemble(("look here", "bold yellow"), f" {subject}: {text}")
