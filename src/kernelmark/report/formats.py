"""Renders a stored run in one of the formats, and keeps the reports beside its records.

CSV holds raw numbers, the unit at the end of the column's name; JSON every record as it is stored, samples included.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernelmark.records import Row, StoredRun, read_run
from kernelmark.report.columns import COLUMNS, Value
from kernelmark.report.console import console_report, plain_text
from kernelmark.report.pages import DOCUMENT_VERSION, page_markdown, write_report
from kernelmark.report.remarks import check_counts, remarks
from kernelmark.report.run_page import run_page
from kernelmark.stats import Overview, overview

__all__ = ["Format", "csv_report", "csv_table", "json_report", "render", "write_reports"]

SCHEMA = "kernelmark.report"
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet would take for a formula; text that starts so is prefixed with an apostrophe."""


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
    return [write_report(Path(folder) / name, render(run, each)) for each, name in _FILES.items()]


# --- JSON and CSV ----------------------------------------------------------------------------------------


def json_report(run: StoredRun) -> str:
    """Write ``run`` as JSON, one row a line, so that two reports can be compared by line."""
    rows = ",\n".join(row.model_dump_json() for row in run.rows)
    members = {
        "schema": _dump(SCHEMA),
        "schema_version": _dump(DOCUMENT_VERSION),
        "header": run.header.model_dump_json(),
        "rows": f"[\n{rows}\n]" if rows else "[]",
        "end": run.end.model_dump_json() if run.end else "null",
        "truncated": _dump(run.truncated),
        "checks": _dump(check_counts(run.rows)),
        "overview": _dump([_summed(each) for each in overview(run.rows)]),
        "remarks": _dump([{"subject": each.subject, "text": each.text} for each in remarks(run)]),
    }
    return "{\n" + ",\n".join(f"{_dump(name)}: {text}" for name, text in members.items()) + "\n}\n"


def _summed(each: Overview) -> dict[str, Any]:
    told = {name: getattr(each, name) for name in ("baseline", "cases", "faster", "slower", "undecided")}
    mean = None if each.mean is None else asdict(each.mean)
    return {**told, "failed": each.failed, "without": each.without, "mean": mean}


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
    writer.writerows([_cell(value) for value in line] for line in lines)
    return stream.getvalue()


def _cell(value: Value) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and value.lstrip(" ").startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


_RENDERERS: dict[Format, Callable[[StoredRun], str]] = {
    Format.CONSOLE: lambda run: plain_text(console_report(run)) + "\n",
    Format.MARKDOWN: lambda run: page_markdown(run_page(run)),
    Format.JSON: json_report,
    Format.CSV: lambda run: csv_report(run.rows),
}
_FILES = {Format.MARKDOWN: "report.md", Format.JSON: "report.json", Format.CSV: "report.csv"}
