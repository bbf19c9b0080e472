"""``benchmark.md`` and ``benchmark.json``: one comparison on one page, as kernel-benchmark scripts write it.

It lays out what it is told, and computes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelmark.kernelfile.judging import Ending
from kernelmark.report import write_report
from kernelmark.report.columns import Align
from kernelmark.report.pages import Block, Items, Page, Section, Table, page_markdown
from kernelmark.units import format_ratio, significant

__all__ = ["VERDICTS", "write_documents"]

VERDICTS = {
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


def write_documents(folder: Path, told: Mapping[str, Any]) -> None:
    """Write both files into ``folder``, over those of the run before.

    Raises:
        RecordError: a file cannot be written.
    """
    write_report(folder / "benchmark.json", json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    write_report(folder / "benchmark.md", page_markdown(_page(told)))


def _page(told: Mapping[str, Any]) -> Page:
    header = {name: _cell(value) for name, value in told["header"].items()}
    message = told["message"].partition("\n")[0]
    opening = f"{header['correctness']}: {message}" if message else header["correctness"]
    sections = [Section("", (opening, *_look_at(told["remarks"]), Table(("", ""), tuple(header.items()))))]
    if told["message"]:
        sections.append(Section("What went wrong", tuple(_evidence(told))))
    sections.append(Section("Times", (_times(told["variants"]),)))
    if told["speedups"]:
        sections.append(Section("Speed-up of the solution", (_ABOVE_1, _speedups(told["speedups"]))))
    notes = [f"{name}: {note}" for name, each in told["variants"].items() for note in each["notes"]]
    if notes:
        sections.append(Section("Notes", (Items(tuple(notes)),)))
    sections.append(Section("", (f"The whole run, with every sample, is in {told['run']}.",)))
    return Page(f"Kernel benchmark: {Path(header['solution']).name}", tuple(sections))


_ABOVE_1 = (
    "Above 1 the solution is faster. The paired ratio is the geometric mean of the blocks' own, and its interval says"
    " how sure it is; one that holds 1 decides nothing. Quotients of means and of medians can lie elsewhere where"
    " blocks were disturbed."
)


def _look_at(remarks: Sequence[str]) -> Iterator[str | Items]:
    if remarks:
        yield "Look at this before believing the numbers:"
        yield Items(tuple(remarks))


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


def _speedups(speedups: Sequence[Mapping[str, Any]]) -> Table:
    cells = tuple(
        (
            each["baseline"],
            f"{each['by_mean']:.3f}",
            f"{each['by_median']:.3f}",
            format_ratio(each["paired"], each["low"], each["high"]),
            each["verdict"],
        )
        for each in speedups
    )
    return Table(("against", "by mean", "by median", "paired, with its 95 % interval", "verdict"), cells)


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
