"""``benchmark.md`` and ``benchmark.json``: one comparison on one page, as kernel-benchmark scripts write it.

The JSON holds what the run found; the page lays that out, and computes nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelmark.errors import KernelmarkError
from kernelmark.kernelfile.judging import Ending, busy_samples
from kernelmark.kernelfile.request import Request
from kernelmark.records import FORMAT_VERSION, Row, RunHeader, StoredRun, Timing
from kernelmark.report import write_report
from kernelmark.report.columns import Align
from kernelmark.report.facts import probe_text
from kernelmark.report.notes import error_text, row_notes
from kernelmark.report.pages import Block, Items, Page, Section, Table, page_markdown
from kernelmark.report.remarks import remarks
from kernelmark.stats import nearest_rank
from kernelmark.units import NS_PER_MS, format_ratio, significant

if TYPE_CHECKING:
    from kernelmark.harness import Comparison

__all__ = ["KernelRun", "summary", "write_documents"]

_VERDICTS = {
    Ending.MEASURED: "PASS",
    Ending.VERIFIED: "PASS (verified only, not timed)",
    Ending.UNVERIFIED: "NOT VERIFIED: nothing shows that the answers are right",
    Ending.WRONG: "FAIL",
    Ending.CRASHED: "FAIL (the solution gave no answer)",
    Ending.UNTIMED: "PASS, but without times that can be trusted",
}

_STATISTICS = {
    "mean_ms": "mean (ms)",
    "median_ms": "median (ms)",
    "p20_ms": "p20 (ms)",
    "p80_ms": "p80 (ms)",
    "min_ms": "min (ms)",
    "max_ms": "max (ms)",
    "std_ms": "standard deviation (ms)",
    "samples": "samples",
}
"""Key in the JSON → label in the table."""


@dataclass(frozen=True, slots=True)
class KernelRun:
    """What one benchmark found, and where it is written."""

    request: Request
    header: RunHeader
    rows: tuple[Row, ...]
    outcome: Ending
    error: KernelmarkError | None
    """What ended it; ``None`` where it passed."""
    facts: Mapping[str, Any]
    folder: Path
    """The folder of the run: records, and the reports of every other way in."""
    told: dict[str, Any] = field(default_factory=dict)
    """What ``benchmark.json`` holds."""

    @property
    def comparison(self) -> Comparison:
        """The rows as a table that prints."""
        from kernelmark.harness import Comparison

        return Comparison(self.request.case_id, self.rows)


# --- what is found -------------------------------------------------------------------------------------


def summary(run: KernelRun, stored: StoredRun) -> dict[str, Any]:
    """Give what ``benchmark.json`` holds."""
    return {
        "schema": "kernelmark.kernelfile",
        "schema_version": FORMAT_VERSION,
        "outcome": run.outcome.value,
        "message": str(run.error or ""),
        "header": _header(run),
        "variants": {row.implementation: _variant(row) for row in run.rows},
        "speedups": list(_speedups(run.rows)),
        "remarks": [f"{each.subject}: {each.text}" for each in remarks(stored)],
        "output": run.facts.get("output", ""),
        "run": os.path.relpath(run.folder, run.request.output_dir),
    }


def _header(run: KernelRun) -> dict[str, Any]:
    request, device, facts = run.request, run.header.device, run.facts
    protocol = run.header.protocol
    flushed = " (caches flushed before every timed call)" if protocol.cache.value == "cold" else ""
    probe = "nothing was timed" if protocol.verify_only else probe_text(run.header.probe, protocol.cache)
    timer = {"device_events": "cuda_event", "host": "host_time"}.get(protocol.timer, "")
    return {
        "solution": str(request.solution),
        "implementation": request.language.value,
        "built with": facts.get("built with", ""),
        "reference": str(request.ref),
        "device": device.name,
        "arch": device.capability or "",
        "dimensions": dict(request.values),
        "correctness": _VERDICTS[run.outcome],
        "timing method": f"{timer} ({protocol.timer})" if timer else protocol.timer,
        "warm-up rounds": request.num_warmup,
        "discarded rounds": request.discard_first,
        "trials asked for": request.num_trials,
        "prewarm calls": request.prewarm_calls,
        "cache mode": f"{protocol.cache.value}{flushed}",
        "cache probe": probe,
        "timing scope": "device busy time of one call; variants interleaved in blocks",
        "seed": request.seed,
        "tolerances": facts.get("tolerances", ""),
        "buffers": facts.get("buffers", {}),
        "buffers from": facts.get("buffers from", ""),
        "isolated": request.isolation,
        "answers checked again": facts.get("answers checked again", "no"),
    }


def _variant(row: Row) -> dict[str, Any]:
    told: dict[str, Any] = {
        "check": row.check.value,
        "backend": row.backend,
        "notes": [*row_notes(row), *(error_text(each) for each in row.outputs if each.passed)],
        "outputs": [each.model_dump(mode="json", exclude_none=True) for each in row.outputs],
    }
    if row.traceback:
        told["traceback"] = row.traceback
    return told if row.timing is None else {**told, **_statistics(row.timing)}


def _statistics(timing: Timing) -> dict[str, Any]:
    busy, samples = timing.device_busy, busy_samples(timing)
    p20, p80 = nearest_rank(samples, 0.2), nearest_rank(samples, 0.8)
    in_ns = (busy.mean_ns, busy.median_ns, p20, p80, busy.min_ns, busy.max_ns, busy.std_ns)
    in_ms = [None if ns is None else ns / NS_PER_MS for ns in in_ns]
    return dict(zip(_STATISTICS, (*in_ms, busy.samples), strict=True))


def _speedups(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Say how many times as fast as each baseline the solution is, by mean, by median and paired."""
    ours = rows[0].timing
    for row in rows[1:]:
        if row.ratio is None or row.timing is None or ours is None:
            continue
        mine, theirs, ratio = ours.device_busy, row.timing.device_busy, row.ratio
        yield {
            "baseline": row.implementation,
            "by_mean": theirs.mean_ns / mine.mean_ns,
            "by_median": theirs.median_ns / mine.median_ns,
            "paired": ratio.value,
            "low": ratio.low,
            "high": ratio.high,
            "confidence": ratio.confidence,
            "verdict": ratio.verdict,
        }


# --- the page ------------------------------------------------------------------------------------------


def write_documents(folder: Path, told: Mapping[str, Any]) -> None:
    """Write both files into ``folder``, over those of the run before.

    Raises:
        RecordError: a file cannot be written.
    """
    write_report(folder / "benchmark.json", json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    write_report(folder / "benchmark.md", page_markdown(_page(told)))


def _page(told: Mapping[str, Any]) -> Page:
    header = {name: _cell(value) for name, value in told["header"].items()}
    message, variants = told["message"].partition("\n")[0], told["variants"]
    opening = f"{header['correctness']}: {message}" if message else header["correctness"]
    doubts = ["Look at this before believing the numbers:", Items(tuple(told["remarks"]))]
    doubts = doubts if told["remarks"] else []
    sections = [Section("", (opening, *doubts, Table(("", ""), tuple(header.items()))))]
    if message:
        sections.append(Section("What went wrong", tuple(_evidence(told))))
    sections.append(Section("Times", (_times(variants),)))
    if told["speedups"]:
        explained = (
            "Above 1 the solution is faster. The paired ratio is the geometric mean of the blocks' own, and its"
            " interval says how sure it is; one that holds 1 decides nothing. Quotients of means and of medians can"
            " lie elsewhere where blocks were disturbed."
        )
        lines = tuple(
            (
                each["baseline"],
                f"{each['by_mean']:.3f}",
                f"{each['by_median']:.3f}",
                format_ratio(each["paired"], each["low"], each["high"]),
                each["verdict"],
            )
            for each in told["speedups"]
        )
        table = Table(("against", "by mean", "by median", "paired, with its 95 % interval", "verdict"), lines)
        sections.append(Section("Speed-up of the solution", (explained, table)))
    if notes := [f"{name}: {note}" for name, each in variants.items() for note in each["notes"]]:
        sections.append(Section("Notes", (Items(tuple(notes)),)))
    sections.append(Section("", (f"The whole run, with every sample, is in {told['run']}.",)))
    return Page(f"Kernel benchmark: {Path(header['solution']).name}", tuple(sections))


def _evidence(told: Mapping[str, Any]) -> Iterator[str | Block]:
    yield Block(told["message"])
    traceback = next(iter(told["variants"].values())).get("traceback", "")
    if traceback and traceback.strip() not in told["message"]:
        yield Block(traceback)
    if told["output"]:
        yield "The last lines of its output:"
        yield Block(told["output"])


def _times(variants: Mapping[str, Mapping[str, Any]]) -> Table:
    cells = [("check", *(each["check"] for each in variants.values()))]
    if any("samples" in each for each in variants.values()):
        cells += [
            (label, *(_number(each.get(key)) for each in variants.values()))
            for key, label in _STATISTICS.items()
        ]
    return Table(("", *variants), tuple(cells), (Align.LEFT, *(Align.RIGHT for _ in variants)))


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value) or "—"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else significant(value)
