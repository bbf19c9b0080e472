"""Writes an audit: as JSON for programs and as a page for people. Renders what was found and derives nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelmark.audit.result import Audit
from kernelmark.audit.work import budget_for
from kernelmark.report import write_report
from kernelmark.report.facts import device_text
from kernelmark.report.pages import DOCUMENT_VERSION, Items, Page, Section, Table, page_markdown
from kernelmark.units import format_percent, format_time, significant

__all__ = ["HEADINGS", "SCHEMA", "as_json", "audit_page", "summary", "write_audit"]

SCHEMA = "kernelmark.audit"

HEADINGS = ("call", "instrument", "caches", "median", "bias", "spread", "cost of a run", "note")
_OF_INSTRUMENTS = ("instrument", "a reading is", "caches", "status", "cost")


def write_audit(audit: Audit, folder: Path) -> list[Path]:
    """Write ``audit.json`` and ``audit.md`` into ``folder``.

    Raises:
        RecordError: a file cannot be written.
    """
    return [
        write_report(folder / "audit.json", json.dumps(as_json(audit), indent=1, ensure_ascii=False) + "\n"),
        write_report(folder / "audit.md", page_markdown(audit_page(audit))),
    ]


def as_json(audit: Audit) -> dict[str, Any]:
    """Give the audit as values that JSON has; times in nanoseconds, costs in seconds."""
    setting = audit.setting
    budget = budget_for(setting.device.kind)
    return {
        "schema": SCHEMA,
        "schema_version": DOCUMENT_VERSION,
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
        "readings": [
            {
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
            for cell in audit.cells
            if cell.runs_ns or cell.note
        ],
        "limits": [
            {"what": each.what, "at_most": each.most, "found": each.found, "kept": each.kept}
            for each in audit.limits
        ],
        "doubts": list(audit.doubts),
    }


def audit_page(audit: Audit) -> Page:
    """Lay the audit out: what each instrument read of each call, then the instruments, the limits and the doubts."""
    sections = [
        Section("", (Items(tuple(_facts(audit))), f"{summary(audit)}.")),
        Section("Readings", (Table(HEADINGS, tuple(_readings(audit))),)),
        Section("Instruments", (Table(_OF_INSTRUMENTS, tuple(_lines(audit))),)),
    ]
    if audit.limits:
        sections.append(Section("Limits", (Table(("limit", "at most", "found", ""), tuple(_limits(audit))),)))
    if audit.doubts:
        sections.append(Section("Doubts", (Items(audit.doubts),)))
    return Page(f"Instruments on {audit.setting.device.name}", tuple(sections))


def _readings(audit: Audit) -> Iterator[tuple[str, ...]]:
    """Write for each call what each instrument that read it says, in the order of :data:`HEADINGS`."""
    caches = {line.instrument.name: line.instrument.cache.value for line in audit.lines}
    for call in audit.setting.calls:
        for cell in audit.cells:
            if cell.call == call.name and cell.runs_ns:
                yield (
                    cell.call,
                    cell.instrument,
                    caches[cell.instrument],
                    format_time(cell.median_ns),
                    "" if cell.bias is None else f"{100 * cell.bias:+.2f} %",
                    format_percent(cell.spread, 2),
                    _seconds(cell.cost_s),
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
        f"Each instrument read each call {runs}; {against}; spread: (largest - smallest) / median of the runs"
    )


def _facts(audit: Audit) -> Iterator[str]:
    setting = audit.setting
    versions = {
        "kernelmark": setting.environment.kernelmark,
        "Python": setting.environment.python,
        **setting.environment.libraries,
        **setting.versions,
    }
    yield f"Device: {device_text(setting.device)}"
    yield f"Software: {', '.join(f'{name} {version}' for name, version in versions.items())}"
    yield f"Time: {setting.made}"


def _lines(audit: Audit) -> Iterator[tuple[str, ...]]:
    for line in audit.lines:
        each = line.instrument
        note = f"; {line.note}" if line.note else ""
        yield each.name, each.reads, each.cache.value, line.status + note, _seconds(line.cost_s)


def _limits(audit: Audit) -> Iterator[tuple[str, ...]]:
    for each in audit.limits:
        verdict = {True: "kept", False: "missed", None: "not judged"}[each.kept]
        yield each.what, each.shown(each.most), each.shown(each.found), verdict


def _seconds(cost_s: float | None) -> str:
    return "" if cost_s is None else f"{significant(cost_s, 2)} s"
