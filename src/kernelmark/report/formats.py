"""Renders a stored run in one of the formats, and keeps the reports beside its records.

Its page, for a pull request or an issue, is an overview, tables with their notes, and what to look at. CSV holds raw
numbers, the unit at the end of the column's name; JSON every record as it is stored, samples included.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from itertools import chain
from pathlib import Path

from kernelmark.records import Check, Ratio, Role, Row, StoredRun, read_run
from kernelmark.report import pages
from kernelmark.report.columns import CHECK_MARKS, COLUMNS, NOTES, Align, Column, Value, filled_columns
from kernelmark.report.console import console_report, plain_text
from kernelmark.report.facts import run_facts
from kernelmark.report.notes import row_notes
from kernelmark.report.pages import Code, Details, Line, Strong, Table
from kernelmark.report.remarks import check_counts, remarks
from kernelmark.report.rows import by_op, overview_lines, param_texts, time_scale
from kernelmark.stats import overview
from kernelmark.text import counted
from kernelmark.units import TimeScale, format_percent, format_ratio, significant

__all__ = ["Format", "csv_report", "csv_table", "json_report", "render", "run_page", "write_reports"]

_SUMMED = ("baseline", "cases", "faster", "slower", "undecided", "failed", "without")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet would take for a formula; text that starts so is prefixed with an apostrophe."""

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_LISTED_KERNELS = 12
_EXTREMES = 10
"""So many of the slowest and of the fastest cases stand at the head of a report, where there are more than twice."""

_CHECK_HELP = {
    Check.VERIFIED: "all outputs were compared with the reference",
    Check.PARTIAL: "some outputs were compared with the reference; the note names the others",
    Check.CUSTOM: "the case's own assertion checked the outputs; the note says how",
    Check.UNVERIFIED: "timed, but nothing vouches for its answers: it has no ratio",
    Check.NONCOMPARABLE: "timed, but it means to compute something else: it has no ratio",
    Check.FAILED: "its answers are wrong, so it was not timed",
    Check.UNAVAILABLE: "it could not be had here; the note says why",
}


class Format(StrEnum):
    """The formats of a report."""

    CONSOLE = "console"
    MARKDOWN = "markdown"
    JSON = "json"
    CSV = "csv"


def render(run: StoredRun, format: Format) -> str:  # noqa: A002 - the word the command line uses too
    """Write ``run`` in ``format``; a console is taken to be as wide as needed, and without colour."""
    return _RENDERERS[format](run)


def write_reports(folder: Path) -> list[Path]:
    """Write ``report.md``, ``report.json`` and ``report.csv`` beside the records in ``folder``.

    Raises:
        RecordError: there is no run in ``folder``, or a report cannot be written.
    """
    run = read_run(folder)
    return [pages.write_report(Path(folder) / name, render(run, each)) for each, name in _FILES.items()]


# --- JSON and CSV ----------------------------------------------------------------------------------------


def json_report(run: StoredRun) -> str:
    """Write ``run`` as JSON, one row a line, so that two reports can be compared by line."""
    rows = ",\n".join(row.model_dump_json() for row in run.rows)
    members = {
        "schema": _dump("kernelmark.report"),
        "schema_version": _dump(pages.DOCUMENT_VERSION),
        "header": run.header.model_dump_json(),
        "rows": f"[\n{rows}\n]" if rows else "[]",
        "end": run.end.model_dump_json() if run.end else "null",
        "truncated": _dump(run.truncated),
        "checks": _dump(check_counts(run.rows)),
        "overview": _dump(
            [
                {name: getattr(each, name) for name in _SUMMED}
                | {"mean": None if each.mean is None else asdict(each.mean)}
                for each in overview(run.rows)
            ]
        ),
        "remarks": _dump([asdict(each) for each in remarks(run)]),
    }
    return "{\n" + ",\n".join(f"{_dump(name)}: {text}" for name, text in members.items()) + "\n}\n"


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def csv_report(rows: Iterable[Row]) -> str:
    """Write ``rows``, one a line, with every column there is; text is quoted, numbers are not."""
    return csv_table(
        [column.key for column in COLUMNS], ([column.get(row) for column in COLUMNS] for row in rows)
    )


def csv_table(headings: Sequence[str], lines: Iterable[Sequence[Value]]) -> str:
    """Write any table as CSV; text is quoted, numbers are not."""
    stream = io.StringIO()
    writer = csv.writer(stream, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows([_raw(value) for value in line] for line in lines)
    return stream.getvalue()


def _raw(value: Value) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


# --- the page --------------------------------------------------------------------------------------------


def run_page(run: StoredRun) -> pages.Page:
    """Arrange ``run``."""
    head = (*_opening(run), pages.fields(run_facts(run)), *_how_to_read(run.rows))
    cells = tuple((check.value, str(count)) for check, count in check_counts(run.rows).items())
    checks = pages.Section("Checks", (Table(("check", "rows"), cells, (Align.LEFT, Align.RIGHT)),))
    found = tuple((Strong(remark.subject), f": {remark.text}") for remark in remarks(run))
    told = pages.Items(found) if found else "Nothing in the record makes this run suspicious."
    return pages.Page(
        f"Kernel benchmark on {run.header.device.name}",
        (
            pages.Section("", head),
            *_overview(run.rows),
            *_ops(run.rows),
            *([checks] if run.rows else ()),
            pages.Section("Remarks", (told,)),
        ),
    )


def _opening(run: StoredRun) -> Iterator[Line]:
    if not run.rows:
        yield "This run holds no rows."
    else:
        cases = {(row.op, row.case) for row in run.rows}
        counts = ", ".join(f"{count} {check}" for check, count in check_counts(run.rows).items())
        yield Strong(counted(len(run.rows), "row")), f" of {counted(len(cases), 'case')}: {counts}."
    if found := remarks(run):
        subjects = ", ".join(dict.fromkeys(remark.subject for remark in found))
        things = counted(len(found), "thing")
        yield (
            Strong(f"{things} to look at before believing the numbers:"),
            f" {subjects} (see ",
            pages.Link("Remarks", "#remarks"),
            ").",
        )


def _overview(rows: Sequence[Row]) -> Iterator[pages.Section]:
    found = [each for each in overview(rows) if each.cases > 1]
    if not found:
        return
    parts: list[pages.Part] = [pages.Items(tuple(overview_lines(rows)))]
    for each in found:
        ends = {"slowest": each.ratios[:_EXTREMES], "fastest": each.ratios[: -_EXTREMES - 1 : -1]}
        if len(each.ratios) > 2 * _EXTREMES:
            parts += [
                Details(f"The {end} beside {each.baseline}", (_extremes(ratios),))
                for end, ratios in ends.items()
            ]
    yield pages.Section("Overview", tuple(parts))


def _extremes(ratios: Sequence[tuple[str, Ratio]]) -> Table:
    cells = tuple((Code(case), format_ratio(each.value, each.low, each.high)) for case, each in ratios)
    return Table(("case", "ratio [low, high]"), cells)


def _how_to_read(rows: Sequence[Row]) -> Iterator[pages.Part]:
    if not rows:
        return
    filled = (column for column in filled_columns(rows) if column is not NOTES)
    lines: list[Line] = [(Strong(column.heading), f": {column.help}") for column in filled]
    for check in check_counts(rows):
        mark = f"{CHECK_MARKS[check]} " if check in CHECK_MARKS else ""
        lines.append((Strong(f"{mark}{check}"), f": {_CHECK_HELP[check]}."))
    yield Details("How to read this", (pages.Items(tuple(lines)),))


def _ops(rows: Iterable[Row]) -> Iterator[pages.Section]:
    for op, cases in by_op(rows).items():
        yield pages.Section(Code(op) if op is not None else "Comparisons", ())
        columns = filled_columns(chain(*cases.values()))
        for case, of_case in cases.items():
            yield pages.Section(Code(case), tuple(_case(of_case, columns)), level=3)


def _case(rows: Sequence[Row], columns: Sequence[Column]) -> Iterator[pages.Part]:
    if params := param_texts(rows[0].params):
        yield Table(tuple(params), (tuple(map(Code, params.values())),))
    numbers: dict[str, int] = {}
    for note in chain(*map(row_notes, rows)):
        numbers.setdefault(note, len(numbers) + 1)
    scale = time_scale(rows)
    cells = tuple(tuple(_cell(column, row, scale, numbers) for column in columns) for row in rows)
    yield Table(tuple(column.heading for column in columns), cells, tuple(column.align for column in columns))
    if numbers:
        yield pages.Items(tuple(numbers), numbered=True)
    yield from _kernels(rows)


def _cell(column: Column, row: Row, scale: TimeScale, numbers: dict[str, int]) -> Line:
    if column is NOTES:
        return " ".join(str(numbers[note]).translate(_SUPERSCRIPTS) for note in row_notes(row))
    text = column.text(row, scale)
    if column.key == "implementation":
        return Strong(Code(text)) if row.role is Role.OURS else Code(text)
    return Strong(text) if column.key == "check" and row.check in CHECK_MARKS else text


def _kernels(rows: Iterable[Row]) -> Iterator[Details]:
    """List what ran on the device, so that a library call in disguise can be seen next to the baselines."""
    cells: list[tuple[Line, ...]] = []
    for row in rows:
        kernels = row.timing.kernels if row.timing else ()
        name = Code(row.implementation)
        for kernel in kernels[:_LISTED_KERNELS]:
            share = format_percent(kernel.share)
            cells.append((name, Code(kernel.name), kernel.kind, significant(kernel.per_call, 3), share))
        if len(kernels) > _LISTED_KERNELS:
            cells.append((name, f"and {len(kernels) - _LISTED_KERNELS} more", "", "", ""))
    if cells:
        headings = ("implementation", "name", "kind", "per call", "share of device busy")
        aligns = (*[Align.LEFT] * 3, *[Align.RIGHT] * 2)
        yield Details("What ran on the device", (Table(headings, tuple(cells), aligns),))


_RENDERERS: dict[Format, Callable[[StoredRun], str]] = {
    Format.CONSOLE: lambda run: plain_text(console_report(run)) + "\n",
    Format.MARKDOWN: lambda run: pages.page_markdown(run_page(run)),
    Format.JSON: json_report,
    Format.CSV: lambda run: csv_report(run.rows),
}
_FILES = {Format.MARKDOWN: "report.md", Format.JSON: "report.json", Format.CSV: "report.csv"}
