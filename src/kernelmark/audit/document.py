"""Writes an audit: as JSON for programs and as Markdown for people. Renders what was found and derives nothing.

Schema history of ``audit.json``
    1: schema, schema_version, made, device, environment, versions, runs, budget, reference, instruments,
       readings, limits, doubts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelmark.audit.result import Audit, Cell
from kernelmark.audit.work import budget_for
from kernelmark.report import write_report
from kernelmark.report.facts import device_text
from kernelmark.report.markdown import code, escape
from kernelmark.units import format_percent, format_time, significant

__all__ = ["HEADINGS", "SCHEMA", "as_json", "as_markdown", "summary", "tables", "write_audit"]

SCHEMA, SCHEMA_VERSION = "kernelmark.audit", 1

HEADINGS = ("instrument", "caches", "median", "bias", "spread", "cost of a run", "note")


def write_audit(audit: Audit, folder: Path) -> list[Path]:
    """Write ``audit.json`` and ``audit.md`` into ``folder``.

    Raises:
        RecordError: a file cannot be written.
    """
    return [
        write_report(folder / "audit.json", json.dumps(as_json(audit), indent=1, ensure_ascii=False) + "\n"),
        write_report(folder / "audit.md", as_markdown(audit)),
    ]


def as_json(audit: Audit) -> dict[str, Any]:
    """Give the audit as values that JSON has; times in nanoseconds, costs in seconds."""
    setting = audit.setting
    budget = budget_for(setting.device.kind)
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "made": setting.made,
        "device": setting.device.model_dump(mode="json", exclude_none=True),
        "environment": setting.environment.model_dump(mode="json", exclude_none=True),
        "versions": dict(setting.versions),
        "runs": setting.runs,
        "budget": {name: getattr(budget, name) for name in type(budget).__dataclass_fields__},
        "reference": audit.reference,
        "instruments": [
            {
                "name": line.instrument.name,
                "reads": line.instrument.reads,
                "cache": line.instrument.cache.value,
                "status": line.status,
                "note": line.note,
                "cost_s": line.cost_s,
            }
            for line in audit.lines
        ],
        "readings": [_reading(each) for each in audit.cells if each.runs_ns or each.note],
        "limits": [
            {"what": each.what, "at_most": each.most, "found": each.found, "kept": each.kept}
            for each in audit.limits
        ],
        "doubts": list(audit.doubts),
    }


def as_markdown(audit: Audit) -> str:
    """Write the audit as a Markdown document: one table for each call, then the instruments and the limits."""
    parts = [f"# Instruments on {escape(audit.setting.device.name)}", *_opening(audit)]
    for call, rows in tables(audit).items():
        parts += [f"## {escape(call)}", _table(HEADINGS, [tuple(map(escape, row)) for row in rows])]
    parts += [
        "## Instruments",
        _table(("instrument", "a reading is", "caches", "status", "cost"), _lines(audit)),
    ]
    if audit.limits:
        parts += ["## Limits", _table(("limit", "at most", "found", ""), _limits(audit))]
    if audit.doubts:
        parts += ["## Doubts", "\n".join(f"- {escape(each)}" for each in audit.doubts)]
    return "\n\n".join(parts) + "\n"


def tables(audit: Audit) -> dict[str, list[tuple[str, ...]]]:
    """Write for each call what each instrument that read it says, in the order of ``HEADINGS``."""
    caches = {line.instrument.name: line.instrument.cache.value for line in audit.lines}
    found: dict[str, list[tuple[str, ...]]] = {call.name: [] for call in audit.setting.calls}
    for cell in audit.cells:
        if cell.runs_ns:
            found[cell.call].append(_texts(cell, caches[cell.instrument]))
    return {call: rows for call, rows in found.items() if rows}


def _texts(cell: Cell, cache: str) -> tuple[str, ...]:
    return (
        cell.instrument,
        cache,
        format_time(cell.median_ns),
        "" if cell.bias is None else f"{100 * cell.bias:+.2f} %",
        format_percent(cell.spread, 2),
        "" if cell.cost_s is None else f"{significant(cell.cost_s, 2)} s",
        cell.note,
    )


def summary(audit: Audit) -> str:
    """Say in a sentence how the table is to be read."""
    runs = "once" if audit.setting.runs == 1 else f"{audit.setting.runs} times"
    against = (
        f"bias: median over that of {audit.reference}, less 1"
        if audit.reference
        else "nothing to measure against"
    )
    return (
        f"each instrument read each call {runs}; {against}; spread: (largest - smallest) / median of the runs"
    )


def _reading(cell: Cell) -> dict[str, Any]:
    return {
        "call": cell.call,
        "instrument": cell.instrument,
        "runs_ns": list(cell.runs_ns),
        "median_ns": cell.median_ns,
        "spread": cell.spread,
        "bias": cell.bias,
        "samples_of_a_run": cell.samples,
        "cost_s": list(cell.costs_s),
        "note": cell.note,
    }


def _opening(audit: Audit) -> Iterator[str]:
    setting = audit.setting
    facts = {
        "Device": device_text(setting.device),
        "Software": ", ".join(
            f"{name} {version}"
            for name, version in {
                "kernelmark": setting.environment.kernelmark,
                "Python": setting.environment.python,
                **setting.environment.libraries,
                **setting.versions,
            }.items()
        ),
        "Time": setting.made,
    }
    yield _table(("", ""), [(f"**{name}**", escape(text)) for name, text in facts.items()])
    yield f"{escape(summary(audit))}.".replace("each instrument", "Each instrument", 1)


def _lines(audit: Audit) -> Iterator[Sequence[str]]:
    for line in audit.lines:
        each = line.instrument
        cost = "" if line.cost_s is None else f"{significant(line.cost_s, 2)} s"
        note = f"; {line.note}" if line.note else ""
        yield code(each.name), escape(each.reads), each.cache.value, escape(line.status + note), cost


def _limits(audit: Audit) -> Iterator[Sequence[str]]:
    for each in audit.limits:
        verdict = {True: "kept", False: "**missed**", None: "not judged"}[each.kept]
        yield escape(each.what), each.shown(each.most), each.shown(each.found), verdict


def _table(headings: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *rows))
