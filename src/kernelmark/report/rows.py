"""Rows as they are read: grouped by op and case, as single lines, as properties of a JUnit test case."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernelmark.records import Check, Row
from kernelmark.report.columns import COLUMNS
from kernelmark.report.notes import error_text, row_notes
from kernelmark.report.plain import one_line, visible
from kernelmark.stats import Overview, overview
from kernelmark.text import counted
from kernelmark.units import TimeScale, format_ratio

__all__ = [
    "by_op",
    "check_lines",
    "junit_properties",
    "overview_lines",
    "param_texts",
    "progress_line",
    "time_scale",
]


def by_op(rows: Iterable[Row]) -> dict[str | None, dict[str, list[Row]]]:
    """Group ``rows`` by op, which is ``None`` for what was compared without one, and by case; nothing is sorted."""
    ops: dict[str | None, dict[str, list[Row]]] = {}
    for row in rows:
        ops.setdefault(row.op, {}).setdefault(row.case, []).append(row)
    return ops


def time_scale(rows: Iterable[Row]) -> TimeScale:
    """Give the one unit for the times of a case, so that they can be compared at a glance."""
    return TimeScale.fit(row.timing.device_busy.median_ns for row in rows if row.timing)


def param_texts(params: Mapping[str, Any]) -> dict[str, str]:
    """Write each parameter in one line: text as it is, everything else as JSON."""
    return {
        visible(name): visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in params.items()
    }


# --- single lines, for progress while a run goes on and for runs that only check --------------------------


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
    return " | ".join(_case_line(*each) for cases in by_op(rows).values() for each in cases.items())


def _case_line(case: str, rows: Sequence[Row]) -> str:
    found, scale = [], time_scale(rows)
    for row in rows:
        busy = scale.format(row.timing.device_busy.median_ns) if row.timing else ""
        check = "" if row.check is Check.VERIFIED and busy else row.check.value
        ratio = f"({row.ratio})" if row.ratio else ""
        found.append(" ".join(filter(None, (visible(row.implementation), check, busy, ratio))))
    return f"{visible(case)}: {', '.join(found)}"


def overview_lines(rows: Iterable[Row]) -> list[str]:
    """Say for each baseline how often ours was faster, and the mean of the ratios; nothing for a single case."""
    return [_overview_line(each) for each in overview(rows) if each.cases > 1]


def _overview_line(each: Overview) -> str:
    counts = [f"{each.faster} faster", f"{each.slower} slower", f"{each.undecided} undecided"]
    counts += [f"{each.failed} failed"] if each.failed else []
    counts += [f"{each.without} without a ratio"] if each.without else []
    mean = each.mean
    told = f"beside {each.baseline}, of {counted(each.cases, 'case')}: ours {', '.join(counts)}"
    if mean is None:
        return told
    return f"{told}; geometric mean of {counted(mean.count, 'ratio')} {format_ratio(mean.value, mean.low, mean.high)}"


# --- JUnit ---------------------------------------------------------------------------------------------


def junit_properties(row: Row) -> list[tuple[str, str]]:
    """Give name and value of everything that ``row`` says: ``vllm.device_busy_ns``, ``vllm.check``, ...

    A test has one row per implementation, so the implementation's name comes first.
    """
    name = visible(row.implementation)
    values = [(column.key, column.get(row)) for column in COLUMNS]
    return [
        (f"{name}.{key}", str(value).lower() if isinstance(value, bool) else visible(str(value)))
        for key, value in values
        if value is not None
    ]
