"""What became of candidates: as values, as lines that a run can be taken up from, as a page and as a JSON document.

The score is the share of what was attempted that is correct and more than p times as fast as a baseline. A speed-up
that equals p does not count. Besides the estimate there is what is certain: the lower end of the interval is above p.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kernelmark.files import replace
from kernelmark.isolation import typed
from kernelmark.kernelbench.candidates.job import CANDIDATE, Judging
from kernelmark.kernelbench.results import require_alike
from kernelmark.kernelbench.statuses import Outcome, Status, summary
from kernelmark.report import write_report
from kernelmark.report.columns import Align
from kernelmark.report.pages import DOCUMENT_VERSION, Items, Page, Section, Table, page_markdown
from kernelmark.units import format_percent, format_ratio, format_time

__all__ = [
    "KEPT",
    "THRESHOLDS",
    "FastP",
    "Judged",
    "Speedup",
    "candidates_page",
    "fast_p",
    "read_judged",
    "take_up",
    "write_pages",
]

KEPT, _ASKED = "candidates.jsonl", "candidates.asked.json"
"""A line for each candidate; and how they are judged."""
SCHEMA = "kernelmark.candidates"
THRESHOLDS = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Nothing is as slow as 0, so that fast_0 is the share of what is correct."""


@dataclass(frozen=True, slots=True)
class Speedup:
    """A baseline's time over the candidate's, with its interval where there is one."""

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        return format_ratio(self.value, self.low, self.high)


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one candidate."""

    name: str
    problem: str
    status: Status
    message: str = ""
    """Why it is not verified."""
    time_ns: float | None = None
    """The median of its timed calls."""
    speedups: dict[str, Speedup] = field(default_factory=dict)
    """By baseline."""
    notes: tuple[str, ...] = ()
    wall_s: float = 0.0
    fingerprint: str = ""
    """Of the files and settings; one that is the same need not be judged again."""

    @property
    def outcome(self) -> Outcome:
        """Its end as the lists of statuses have it."""
        return Outcome(self.name, CANDIDATE, self.status, self.message, self.wall_s)

    def to_json(self) -> str:
        """Write it as one line."""
        return json.dumps(asdict(self))


def take_up(out: Path, judging: Mapping[str, object], *, resume: bool) -> dict[str, Judged]:
    """Start a run of candidates in ``out``, or take up the one that is there; give what was judged before by name.

    Args:
        out: The folder of the run.
        judging: How candidates are judged, by the options' names.
        resume: Whether to go on; else the run takes the place of an earlier one.

    Raises:
        UsageError: it would go on in another way than it began; nothing is touched.
    """
    file = out / _ASKED
    asked = {name: str(value) for name, value in judging.items()}
    if resume and file.is_file():
        require_alike(json.loads(file.read_text(encoding="utf-8")), asked)
    out.mkdir(parents=True, exist_ok=True)
    if not resume:
        (out / KEPT).unlink(missing_ok=True)
    replace(file, json.dumps(asked, indent=1) + "\n")
    return read_judged(out / KEPT)


def read_judged(file: Path) -> dict[str, Judged]:
    """Read the candidates of an earlier run by name, the last of each; a line cut short by a kill is left out."""
    found: dict[str, Judged] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        with suppress(ValueError):
            one: Judged = typed(Judged, json.loads(line))
            found[one.name] = one
    return found


# --- the score -------------------------------------------------------------------------------------------


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
    problems: dict[str, list[Judged]] = {}
    for each in judged:
        problems.setdefault(each.problem, []).append(each)
    kinds = [(False, [[each] for each in judged])] if judged else []
    if len(problems) < len(judged):
        kinds.append((True, list(problems.values())))
    return tuple(
        FastP(
            baseline,
            len(parts),
            best,
            _shares(parts, baseline, lambda speedup: speedup.value),
            _shares(parts, baseline, lambda speedup: speedup.low),
        )
        for best, parts in kinds
        for baseline in baselines
    )


def _shares(
    parts: Sequence[Sequence[Judged]], baseline: str, end: Callable[[Speedup], float | None]
) -> tuple[float, ...]:
    def passes(judged: Judged, p: float) -> bool:
        speedup = judged.speedups.get(baseline)
        known = end(speedup) if speedup else None
        return judged.status is Status.VERIFIED and (p == 0 or (known is not None and known > p))

    return tuple(
        sum(any(passes(each, p) for each in part) for part in parts) / len(parts) for p in THRESHOLDS
    )


# --- the page --------------------------------------------------------------------------------------------


def candidates_page(judged: Sequence[Judged], judging: Judging, device: str) -> Page:
    """Lay out the page."""
    baselines = [each.value for each in judging.settings.baselines]
    counts, *_ = summary(each.outcome for each in judged)
    became = (_table(judged, baselines), f"{len(judged)} candidates:{counts.partition(':')[2]}")
    facts = Items(tuple(f"{name}: {value}" for name, value in _facts(judging, device).items()))
    return Page(
        "Candidates",
        (
            Section("", (facts,)),
            Section("What became of each", became),
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
    write_report(judging.out / "candidates.json", json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    page = candidates_page(judged, judging, device)
    return write_report(judging.out / "candidates.md", page_markdown(page))


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
            *(str(each.speedups.get(name, "")) for name in baselines),
            each.message,
        )
        for each in judged
    )
    over = tuple(f"over {name}" for name in baselines)
    aligns = (*(Align.LEFT,) * 3, *(Align.RIGHT,) * (1 + len(over)), Align.LEFT)
    return Table(("candidate", "problem", "status", "time", *over, "why"), cells, aligns)


def _scores(scores: Sequence[FastP]) -> Iterator[Section]:
    cells = tuple(
        (
            f"{score.attempted} {'problems, by the best candidate of each' if score.best else 'candidates'}",
            score.baseline,
            how,
            *map(format_percent, shares),
        )
        for score in scores
        for how, shares in (("estimate", score.estimated), ("certain", score.certain))
    )
    headings = ("share of", "over", "by", *(f"p = {p:g}" for p in THRESHOLDS))
    aligns = (*(Align.LEFT,) * 3, *(Align.RIGHT,) * len(THRESHOLDS))
    text = (
        "The share that is correct and more than p times as fast; at p = 0, that is correct. By the estimate, and"
        " by what is certain: the lower end of the 95 % interval is above p."
    )
    if cells:
        yield Section("fast_p", (text, Table(headings, cells, aligns)))


def _notes(judged: Sequence[Judged]) -> Iterator[Section]:
    """List what is to be known of candidates; what holds for several is said once."""
    whose: dict[str, list[str]] = {}
    for each in judged:
        for note in each.notes:
            whose.setdefault(note, []).append(each.name)
    texts = tuple(
        f"{names[0] if len(names) == 1 else f'{len(names)} candidates'}: {note}"
        for note, names in whose.items()
    )
    if texts:
        yield Section("Notes", (Items(texts),))
