"""``benchmark.md`` and ``benchmark.json``: one comparison on one page, as kernel-benchmark scripts write it.

It renders what rows hold; its means, percentiles and quotients of them are of the rows' own samples.

Schema history of the JSON
    1: schema, schema_version, outcome, message, header, variants, speedups, run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from kernelmark.kernelfile.run import KernelRun
from kernelmark.records import Role, Row
from kernelmark.report import check_lines, write_report
from kernelmark.report.facts import probe_text
from kernelmark.report.markdown import code, escape, escape_line
from kernelmark.report.notes import note_text
from kernelmark.units import NS_PER_MS, format_ratio, significant

__all__ = ["SCHEMA", "SCHEMA_VERSION", "summary", "write_documents"]

SCHEMA = "kernelmark.kernelfile"
SCHEMA_VERSION = 1

_VERDICTS = {
    "measured": "PASS",
    "verified": "PASS (verified only, not timed)",
    "wrong": "FAIL",
    "crashed": "FAIL (the solution gave no answer)",
    "untimed": "PASS, but without times that can be trusted",
}

_STATISTICS: tuple[tuple[str, str], ...] = (
    ("mean_ms", "mean"),
    ("median_ms", "median"),
    ("p20_ms", "p20"),
    ("p80_ms", "p80"),
    ("min_ms", "min"),
    ("max_ms", "max"),
    ("std_ms", "standard deviation"),
)
"""Key in the JSON → label in the table; all in milliseconds."""


def write_documents(run: KernelRun) -> None:
    """Write both files into the output folder, over those of the run before.

    Raises:
        RecordError: a file cannot be written.
    """
    told = summary(run)
    folder = run.request.output_dir
    write_report(folder / "benchmark.json", json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    write_report(folder / "benchmark.md", "\n\n".join(_parts(run, told)) + "\n")


def summary(run: KernelRun) -> dict[str, Any]:
    """Give what both files say."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "outcome": run.outcome,
        "message": run.message,
        "header": _header(run),
        "variants": {row.implementation: _variant(row) for row in run.rows},
        "speedups": _speedups(run.rows),
        "run": os.path.relpath(run.folder, run.request.output_dir),
    }


def _header(run: KernelRun) -> dict[str, Any]:
    request, device, facts = run.request, run.header.device, run.facts
    protocol = run.header.protocol
    return {
        "solution": str(request.solution),
        "implementation": request.language.value,
        "reference": str(request.ref),
        "device": device.name,
        "arch": device.capability or "",
        "dimensions": dict(request.values),
        "correctness": _VERDICTS[run.outcome],
        "timing method": _method(protocol.timer),
        "warm-up rounds": request.num_warmup,
        "discarded rounds": request.discard_first,
        "trials asked for": request.num_trials,
        "prewarm calls": request.prewarm_calls,
        "cache mode": f"{protocol.cache.value}"
        + (" (caches flushed before every timed call)" if protocol.cache.value == "cold" else ""),
        "cache probe": "nothing was timed"
        if protocol.verify_only
        else probe_text(run.header.probe, protocol.cache),
        "timing scope": "device busy time of one call; variants interleaved in blocks",
        "seed": request.seed,
        "tolerances": facts.get("tolerances", {}),
        "buffers": facts.get("buffers", {}),
        "buffers from": facts.get("buffers_from", ""),
        "isolated": request.isolation,
        "answers checked again": facts.get("second_check", "no"),
    }


def _method(timer: str) -> str:
    names = {"device_events": "cuda_event", "host": "host_time"}
    return f"{names[timer]} ({timer})" if timer in names else timer


def _variant(row: Row) -> dict[str, Any]:
    told: dict[str, Any] = {"check": row.check.value, "backend": row.backend, "note": note_text(row.note)}
    told["notes"] = list(map(note_text, row.notes))
    told["outputs"] = [each.model_dump(mode="json", exclude_none=True) for each in row.outputs]
    if row.traceback:
        told["traceback"] = row.traceback
    if row.timing is not None:
        samples = sorted(chain.from_iterable(each.device_busy_ns for each in row.timing.passes))
        busy = row.timing.device_busy
        in_ns = {
            "mean_ms": busy.mean_ns,
            "median_ms": busy.median_ns,
            "p20_ms": _nearest_rank(samples, 0.2),
            "p80_ms": _nearest_rank(samples, 0.8),
            "min_ms": busy.min_ns,
            "max_ms": busy.max_ns,
            "std_ms": busy.std_ns,
        }
        told |= {key: None if ns is None else ns / NS_PER_MS for key, ns in in_ns.items()}
        told["samples"] = busy.samples
    return told


def _nearest_rank(ordered: Sequence[float], share: float) -> float:
    """Give the sample at ``share`` of the way, to the nearest rank, as the records' own percentiles do."""
    return ordered[round(share * (len(ordered) - 1))]


def _speedups(rows: Sequence[Row]) -> list[dict[str, Any]]:
    ours = rows[0].timing
    found = []
    for row in rows[1:]:
        if row.ratio is None or row.timing is None or ours is None:
            continue
        mine, theirs = ours.device_busy, row.timing.device_busy
        ratio = row.ratio
        found.append(
            {
                "baseline": row.implementation,
                "by_mean": theirs.mean_ns / mine.mean_ns,
                "by_median": theirs.median_ns / mine.median_ns,
                "paired": ratio.value,
                "low": ratio.low,
                "high": ratio.high,
                "confidence": ratio.confidence,
                "verdict": ratio.verdict,
            }
        )
    return found


# --- Markdown ------------------------------------------------------------------------------------------


def _parts(run: KernelRun, told: dict[str, Any]) -> Iterator[str]:
    header = told["header"]
    yield f"# Kernel benchmark: {escape(run.request.solution.name)}"
    yield f"**{header['correctness']}**" + (f": {escape(run.message.splitlines()[0])}" if run.message else "")
    yield _table(("", ""), [(f"**{name}**", escape(_told(value))) for name, value in header.items()])
    if run.message:
        yield "## What went wrong"
        yield _block(run.message)
        evidence = run.rows[0].traceback
        if evidence and evidence.strip() not in run.message:
            yield _block(evidence)
        if run.facts.get("output"):
            yield "The last lines of its output:"
            yield _block(run.facts["output"])
    yield from _times(run.rows, told)
    yield from _speedup_table(told["speedups"])
    yield from _notes(run.rows)
    yield f"The whole run, with every sample, is in {code(told['run'])}."


def _times(rows: Sequence[Row], told: dict[str, Any]) -> Iterator[str]:
    variants = told["variants"]
    yield "## Times"
    names = [row.implementation for row in rows]
    lines: list[tuple[str, ...]] = [("check", *(variants[name]["check"] for name in names))]
    if any(row.timing for row in rows):
        for key, label in _STATISTICS:
            lines.append((f"{label} (ms)", *(_ms(variants[name].get(key)) for name in names)))
        lines.append(("samples", *(str(variants[name].get("samples", "")) for name in names)))
    yield _table(("", *(code(name) for name in names)), lines)


def _speedup_table(speedups: Sequence[dict[str, Any]]) -> Iterator[str]:
    if not speedups:
        return
    yield "## Speed-up of the solution"
    yield "Above 1 the solution is faster. The interval is of the paired ratio; one that holds 1 decides nothing."
    lines = [
        (
            code(each["baseline"]),
            f"{each['by_mean']:.3f}",
            f"{each['by_median']:.3f}",
            format_ratio(each["paired"], each["low"], each["high"]),
            each["verdict"],
        )
        for each in speedups
    ]
    yield _table(("against", "by mean", "by median", "paired, with its 95 % interval", "verdict"), lines)


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    lines = []
    for row in rows:
        told = [row.note] if row.note and row.role is Role.BASELINE else []
        told += [*row.notes, *(row.timing.notes if row.timing else ())]
        lines += [
            f"- {code(row.implementation)}: {escape_line(note_text(note))}" for note in dict.fromkeys(told)
        ]
        lines += [f"- {code(row.implementation)}: {escape_line(text)}" for text in check_lines([row])]
    if lines:
        yield "## Notes"
        yield "\n".join(dict.fromkeys(lines))


def _told(value: Any) -> str:
    if isinstance(value, dict):
        sources = value.get("sources")
        if isinstance(sources, dict):
            return ", ".join(f"{name}={value[name]:g} ({where})" for name, where in sources.items())
        return ", ".join(f"{name}={each}" for name, each in value.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or "—"


def _ms(value: float | None) -> str:
    return "" if value is None else significant(value)


def _block(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def _table(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, ["---"] * len(headings), *cells))
