"""Rows as single lines, for progress while a run goes on and for runs that only check."""

from __future__ import annotations

from collections.abc import Iterable

from kernelmark.records import Check, Row
from kernelmark.report.columns import ratio_text
from kernelmark.report.groups import CaseRows, by_op
from kernelmark.report.notes import error_text, row_notes
from kernelmark.report.plain import one_line, visible

__all__ = ["check_lines", "progress_line"]


def check_lines(rows: Iterable[Row]) -> list[str]:
    """Say of each output of each row how far it is from the reference, or why it was not compared."""
    lines = []
    for row in rows:
        start = f"{visible(row.case)}  {visible(row.implementation)}  {row.check}"
        told = [one_line(error_text(output)) for output in row.outputs]
        if not told or row.check is not Check.VERIFIED:
            # the notes of a failed row hold the errors of the outputs that failed it
            told += [note for note in row_notes(row) if note not in told]
        lines += [f"{start}  {text}" for text in told or ["nothing to compare"]]
    return lines


def progress_line(rows: Iterable[Row]) -> str:
    """Say in one line what the newest rows found."""
    return " | ".join(_case_line(case) for op in by_op(rows) for case in op.cases)


def _case_line(case: CaseRows) -> str:
    found = []
    for row in case.rows:
        busy = case.scale.format(row.timing.device_busy.median_ns) if row.timing else ""
        check = "" if row.check is Check.VERIFIED and busy else row.check.value
        ratio = f"({ratio_text(row.ratio)})" if row.ratio else ""
        found.append(" ".join(filter(None, (visible(row.implementation), check, busy, ratio))))
    return f"{visible(case.case)}: {', '.join(found)}"
