"""The page of a run of candidates: a line for each, and KernelBench's score; and the same as a JSON document.

The score is the share of what was attempted that is correct and more than p times as fast as a baseline. A speed-up
that equals p does not count. Besides the estimate there is what is certain: the lower end of the interval is above p.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kernelmark.kernelbench.candidates.judged import Judged, Speedup
from kernelmark.kernelbench.candidates.judging import Judging
from kernelmark.kernelbench.statuses import Status, summary
from kernelmark.report import write_report
from kernelmark.report.columns import Align
from kernelmark.report.pages import DOCUMENT_VERSION, Items, Page, Section, Table, page_markdown
from kernelmark.units import format_percent, format_ratio, format_time

__all__ = ["THRESHOLDS", "FastP", "candidates_page", "fast_p", "write_pages"]

SCHEMA = "kernelmark.candidates"
_PAGE, _JSON = "candidates.md", "candidates.json"


THRESHOLDS = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Nothing is as slow as 0, so that fast_0 is the share of what is correct."""


@dataclass(frozen=True, slots=True)
class FastP:
    """The score against one baseline, at each of the thresholds."""

    baseline: str
    attempted: int
    """Candidates, or problems where the best candidate of each counts."""
    best: bool
    """Whether a problem counts once, where any of its candidates does."""
    estimated: tuple[float, ...]
    certain: tuple[float, ...]


def fast_p(judged: Sequence[Judged], baselines: Sequence[str]) -> tuple[FastP, ...]:
    """Score all candidates against each baseline; where a problem has several, also by the best of each problem."""
    groups: dict[str, list[Judged]] = {}
    for each in judged:
        groups.setdefault(each.problem, []).append(each)
    apart = [[each] for each in judged]
    kinds = [(False, apart)]
    if len(groups) < len(judged):
        kinds.append((True, list(groups.values())))
    return tuple(
        FastP(
            baseline,
            len(parts),
            best,
            tuple(_share(parts, baseline, p, _estimate) for p in THRESHOLDS),
            tuple(_share(parts, baseline, p, _at_least) for p in THRESHOLDS),
        )
        for best, parts in kinds
        for baseline in baselines
        if parts
    )


def _share(
    parts: Sequence[Sequence[Judged]], baseline: str, p: float, speedup: Callable[[Judged, str], float | None]
) -> float:
    passed = sum(any(_counts(each, baseline, p, speedup) for each in part) for part in parts)
    return passed / len(parts)


def _counts(judged: Judged, baseline: str, p: float, speedup: Callable[[Judged, str], float | None]) -> bool:
    if judged.status is not Status.VERIFIED:
        return False
    if p == 0:
        return True
    known = speedup(judged, baseline)
    return known is not None and known > p


def _estimate(judged: Judged, baseline: str) -> float | None:
    found = judged.speedups.get(baseline)
    return None if found is None else found.value


def _at_least(judged: Judged, baseline: str) -> float | None:
    found = judged.speedups.get(baseline)
    return None if found is None else found.low


# --- the page --------------------------------------------------------------------------------------------


def candidates_page(judged: Sequence[Judged], judging: Judging, device: str) -> Page:
    """Lay out the page."""
    baselines = [each.value for each in judging.settings.baselines]
    return Page(
        "Candidates",
        (
            Section(
                "", (Items(tuple(f"{name}: {value}" for name, value in _facts(judging, device).items())),)
            ),
            Section(
                "What became of each",
                (_table(judged, baselines), _counted(judged)),
            ),
            *_scores(fast_p(judged, baselines)),
            *_notes(judged),
        ),
    )


def write_pages(judged: Sequence[Judged], judging: Judging, device: str) -> Path:
    """Write both files into the output folder; give the page's path.

    Raises:
        RecordError: a file cannot be written.
    """
    scores = fast_p(judged, [each.value for each in judging.settings.baselines])
    told = {
        "schema": SCHEMA,
        "schema_version": DOCUMENT_VERSION,
        "facts": _facts(judging, device),
        "candidates": [asdict(each) for each in judged],
        "fast_p": [{"thresholds": THRESHOLDS, **asdict(each)} for each in scores],
    }
    write_report(judging.out / _JSON, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    return write_report(judging.out / _PAGE, page_markdown(candidates_page(judged, judging, device)))


def _facts(judging: Judging, device: str) -> dict[str, str]:
    settings = judging.settings
    return {
        "device": device,
        "dtype": settings.dtype,
        "sizes": judging.sizes.value,
        "mode": settings.mode.value,
        "cache": settings.cache.value,
        "draws checked outside": str(settings.seeds),
        "iterations": str(settings.iterations),
        "tolerance": str(settings.policy.for_dtype(settings.element.torch).rule),
    }


def _table(judged: Sequence[Judged], baselines: Sequence[str]) -> Table:
    cells = tuple(
        (
            each.name,
            each.problem.removesuffix(".py"),
            each.status.value,
            format_time(each.time_ns),
            *(_ratio(each.speedups.get(name)) for name in baselines),
            each.message,
        )
        for each in judged
    )
    over = tuple(f"over {name}" for name in baselines)
    aligns = (*(Align.LEFT,) * 3, *(Align.RIGHT,) * (1 + len(over)), Align.LEFT)
    return Table(("candidate", "problem", "status", "time", *over, "why"), cells, aligns)


def _counted(judged: Sequence[Judged]) -> str:
    """Count the candidates by status."""
    line, *_ = summary(each.outcome for each in judged)
    return f"{len(judged)} candidates:{line.partition(':')[2]}"


def _scores(scores: Sequence[FastP]) -> tuple[Section, ...]:
    if not scores:
        return ()
    cells = []
    for score in scores:
        what = "problems, by the best candidate of each" if score.best else "candidates"
        for how, shares in (("estimate", score.estimated), ("certain", score.certain)):
            cells.append(
                (
                    f"{score.attempted} {what}",
                    score.baseline,
                    how,
                    *(format_percent(share) for share in shares),
                )
            )
    headings = ("share of", "over", "by", *(f"p = {p:g}" for p in THRESHOLDS))
    aligns = (*(Align.LEFT,) * 3, *(Align.RIGHT,) * len(THRESHOLDS))
    text = (
        "The share that is correct and more than p times as fast; at p = 0, that is correct. By the estimate, and"
        " by what is certain: the lower end of the 95 % interval is above p."
    )
    return (Section("fast_p", (text, Table(headings, tuple(cells), aligns))),)


def _notes(judged: Sequence[Judged]) -> tuple[Section, ...]:
    """List what is to be known of candidates; what holds for several is said once."""
    whose: dict[str, list[str]] = {}
    for each in judged:
        for note in each.notes:
            whose.setdefault(note, []).append(each.name)
    texts = tuple(
        f"{names[0] if len(names) == 1 else f'{len(names)} candidates'}: {note}"
        for note, names in whose.items()
    )
    return (Section("Notes", (Items(texts),)),) if texts else ()


def _ratio(speedup: Speedup | None) -> str:
    return "" if speedup is None else format_ratio(speedup.value, speedup.low, speedup.high)
