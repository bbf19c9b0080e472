"""Writes a run's rows as CSV for other programs: raw numbers, the unit at the end of the column's name.

Text that a spreadsheet would take for a formula is prefixed with an apostrophe.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from kernelmark.records import Row
from kernelmark.report.columns import COLUMNS, Value

__all__ = ["csv_report", "csv_table"]

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


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
