"""Renders a run of a suite, or two of them beside each other, and keeps the reports beside the run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernelmark.errors import UsageError
from kernelmark.kernelbench.against import against_page
from kernelmark.kernelbench.figures import Group, Line, SuiteFigures, figures_of
from kernelmark.kernelbench.results import HEADER, SuiteRun, read_suite_run
from kernelmark.kernelbench.suite_page import facts_of, suite_page
from kernelmark.report import Format, write_report
from kernelmark.report.columns import Value
from kernelmark.report.formats import csv_table
from kernelmark.report.notes import note_text
from kernelmark.report.pages import DOCUMENT_VERSION, page_markdown, page_text

__all__ = ["is_suite_run", "render_against", "render_suite", "write_suite_reports"]

SCHEMA = "kernelmark.suite"
_FILES = {Format.MARKDOWN: "suite.md", Format.JSON: "suite.json", Format.CSV: "suite.csv"}


def is_suite_run(path: Path) -> bool:
    """Whether ``path`` is the folder of a suite's run."""
    return (path / HEADER).is_file()


def render_suite(run: SuiteRun, format: Format) -> str:  # noqa: A002 - the word the command line uses too
    """Write ``run`` in ``format``."""
    if format is Format.JSON:
        return _json(run)
    if format is Format.CSV:
        return _csv(figures_of(run))
    page = suite_page(run)
    return page_markdown(page) if format is Format.MARKDOWN else page_text(page)


def render_against(
    run: SuiteRun,
    other: SuiteRun,
    format: Format,  # noqa: A002 - as above
    *,
    ignore: Iterable[str] = (),
) -> str:
    """Write what is not in ``run`` as it was in ``other``, as Markdown or for a console.

    Raises:
        UsageError: another format is asked for, or ``ignore`` names what no run holds.
        RecordError: the runs' figures mean different things, and not only in what ``ignore`` names.
    """
    if format in (Format.JSON, Format.CSV):
        raise UsageError(f"--against with --format {format}: two runs are compared as console or markdown")
    page = against_page(run, other, ignore=ignore)
    return page_markdown(page) if format is Format.MARKDOWN else page_text(page)


def write_suite_reports(out: Path) -> tuple[Path, ...]:
    """Write ``suite.md``, ``suite.json`` and ``suite.csv`` beside the run in ``out``.

    Raises:
        RecordError: there is no run in ``out``, or a report cannot be written.
    """
    run = read_suite_run(out)
    return tuple(write_report(out / name, render_suite(run, each)) for each, name in _FILES.items())


# --- JSON and CSV --------------------------------------------------------------------------------------


def _json(run: SuiteRun) -> str:
    figures = figures_of(run)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "schema_version": DOCUMENT_VERSION,
        "header": run.header.model_dump(mode="json"),
        "facts": dict(facts_of(run)),
        "subject": figures.subject,
        "baselines": figures.baselines,
        "groups": [_group(group) for group in figures.groups],
        "kernels": [_kernel(line, figures) for line in figures.lines],
        "causes": [asdict(cause) for cause in figures.causes],
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _group(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "kernels": group.kernels,
        "statuses": dict(group.statuses),
        "means": {name: asdict(mean) for name, mean in group.means.items()},
    }


def _kernel(line: Line, figures: SuiteFigures) -> dict[str, Any]:
    ratios = {name: line.ratio(name) for name in figures.baselines}
    return {
        **asdict(line.outcome),
        "check": line.check,
        "error_over_tolerance": _number(line.error_over_tolerance),
        "implementations": {
            name: {
                "check": row.check,
                "note": note_text(row.note),
                "backend": row.backend,
                "device_busy_ns": line.median_ns(name),
            }
            for name, row in line.rows.items()
        },
        "ratios": {
            name: ratio.model_dump(mode="json", exclude={"block_ratios"})
            for name, ratio in ratios.items()
            if ratio is not None
        },
    }


def _number(value: float | None) -> float | str | None:
    # JSON has no infinity and no NaN
    return value if value is None or math.isfinite(value) else str(value)


def _csv(figures: SuiteFigures) -> str:
    names = [figures.subject, *figures.baselines] if figures.subject else []
    headings = ["kernel", "pipeline", "status", "message", "wall_s", "check", "error_over_tolerance"]
    headings += [f"{name}_ns" for name in names]
    for name in figures.baselines:
        headings += [f"{name}_ratio", f"{name}_ratio_low", f"{name}_ratio_high", f"{name}_verdict"]
    return csv_table(headings, [list(_csv_line(line, names, figures.baselines)) for line in figures.lines])


def _csv_line(line: Line, names: list[str], baselines: tuple[str, ...]) -> Iterator[Value]:
    outcome = line.outcome
    yield from (outcome.kernel, outcome.pipeline, outcome.status.value, outcome.message, outcome.wall_s)
    yield from (line.check, line.error_over_tolerance)
    yield from (line.median_ns(name) for name in names)
    for name in baselines:
        ratio = line.ratio(name)
        yield from (
            (None, None, None, None) if ratio is None else (ratio.value, ratio.low, ratio.high, ratio.verdict)
        )
