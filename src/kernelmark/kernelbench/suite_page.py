"""The page of a suite's run: how it was made, means, what loses, what is not verified, and a line for each kernel.

It arranges figures and records as texts; figures come from :mod:`kernelmark.kernelbench.figures`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from kernelmark.kernelbench.figures import OVER_ALL, Group, Line, SuiteFigures, figures_of
from kernelmark.kernelbench.results import SuiteRun
from kernelmark.kernelbench.statuses import Status
from kernelmark.records import StoredRun
from kernelmark.report.columns import Align
from kernelmark.report.facts import run_facts
from kernelmark.report.notes import note_text
from kernelmark.report.pages import Items, Page, Section, Table
from kernelmark.report.plain import shortened
from kernelmark.report.remarks import remarks
from kernelmark.stats import MeanRatio
from kernelmark.units import format_bytes, format_ratio, format_time, significant

__all__ = ["counted_statuses", "facts_of", "mean_text", "suite_page"]

_OF_THE_MACHINE = ("Device", "Software", "Platform", "Revision", "Protocol", "Timer", "Caches")
"""What all kernels' runs should say alike."""
_TOLD = 3
"""Kernels whose own words a remark gives; the others are counted, and have reports of their own."""
_ABOUT_RATIOS = (
    "A ratio is the baseline's time over ours, so above 1 ours is faster; its interval (95 %) is the record's own,"
    " over blocks."
)
_ABOUT_MEANS = (
    "A mean is the geometric mean of these ratios; its interval follows from theirs, so it says how far it would"
    " move if the same kernels were measured again, and nothing of other kernels."
)


def suite_page(run: SuiteRun) -> Page:
    """Arrange one run."""
    figures = figures_of(run)
    name = f"KernelBench, {_levels(run)}" if run.kernels else "KernelBench"
    sections = [Section("", (_opening(figures), Table(("", ""), facts_of(run)))), *_means(figures)]
    sections += [*_losing(figures), *_causes(figures), *_lines(figures), *_remarks(run)]
    return Page(name, tuple(sections))


def facts_of(run: SuiteRun) -> tuple[tuple[str, str], ...]:
    """Give label and text of everything a reader must know about how the run was made."""
    return tuple((label, text) for label, text in _facts(run) if text)


def mean_text(mean: MeanRatio | None) -> str:
    """Write a mean with its interval and the number of its kernels."""
    return "" if mean is None else f"{format_ratio(mean.value, mean.low, mean.high)} of {mean.count}"


def counted_statuses(statuses: Mapping[Status, int]) -> str:
    """Write how many kernels have each status."""
    return ", ".join(f"{count} {status}" for status, count in statuses.items()) or "none"


def _levels(run: SuiteRun) -> str:
    levels = dict.fromkeys(kernel.outcome.kernel.split("/", 1)[0] for kernel in run.kernels)
    return f"{shortened(levels)}, {run.header.dtype}"


def _opening(figures: SuiteFigures) -> str:
    everything = figures.groups[0]
    return f"{_kernels(everything.kernels)}: {counted_statuses(everything.statuses)}."


def _facts(run: SuiteRun) -> Iterator[tuple[str, str]]:
    header = run.header
    stored = [kernel.stored for kernel in run.kernels if kernel.stored is not None]
    for label in _OF_THE_MACHINE:
        yield label, _alike(label, stored)
    yield "Threads", _threads(stored)
    yield "Sizes", "the model files' own" if header.infer_shapes else f"{header.sizes} sizes"
    yield "Compiled", _how_compiled(run)
    limit = format_bytes(header.memory_limit_bytes) or "no limit of memory"
    yield "Limits", f"{header.time_limit_s:g} s and {limit} a kernel"
    yield "Jobs", _jobs(run)
    yield "Run", header.run
    resumed = f", taken up again {', '.join(header.resumed)}" if header.resumed else ""
    ended = f" to {header.ended}" if header.ended else ", not ended"
    yield "Time", f"{header.started}{ended}{resumed}"
    yield "Command", shlex.join(header.command)


def _alike(label: str, stored: Sequence[StoredRun]) -> str:
    texts = dict.fromkeys(text for run in stored if (text := dict(run_facts(run)).get(label)))
    if len(texts) < 2:
        return next(iter(texts), "")
    return f"not the same for all kernels: {'; '.join(texts)}"


def _threads(stored: Sequence[StoredRun]) -> str:
    allowed = sorted({run.header.device.threads for run in stored if run.header.device.threads})
    used = [row.params["threads"] for run in stored for row in run.rows[:1] if "threads" in row.params]
    if not allowed:
        return ""
    text = " or ".join(map(str, allowed))
    counts = ", ".join(f"{used.count(each)} kernels use {each}" for each in sorted(set(used)))
    return f"{text} for PyTorch and the compiled code{f'; {counts}' if counts else ''}"


def _how_compiled(run: SuiteRun) -> str:
    way = "through torch.compile" if run.header.torch_compile else "imported as a whole"
    smoke = ", with the plain lowering to loops" if run.header.smoke else ""
    extra = f"; {shlex.join(run.header.extra)}" if run.header.extra else ""
    return f"{way}{smoke}{extra}"


def _jobs(run: SuiteRun) -> str:
    jobs = run.header.jobs
    if jobs == 1:
        return ""
    held = ", one timed at a time, with the processes of the others held" if run.header.benchmark else ""
    return f"{jobs} kernels at a time{held}"


# --- the parts -----------------------------------------------------------------------------------------


def _means(figures: SuiteFigures) -> Iterator[Section]:
    timed = [name for name in figures.baselines if any(name in group.means for group in figures.groups)]
    names = [f"{name} / {figures.subject}" for name in timed]
    cells = [_group_cells(group, timed) for group in figures.groups]
    aligns = (Align.LEFT, Align.RIGHT, Align.LEFT, *[Align.LEFT] * len(names))
    headings = ("pipeline", "kernels", "statuses", *names)
    notes = (_ABOUT_RATIOS, _ABOUT_MEANS) if timed else ()
    yield Section("Per pipeline", (*notes, Table(headings, tuple(cells), aligns)))


def _group_cells(group: Group, baselines: Sequence[str]) -> tuple[str, ...]:
    name = "all of them" if group.name == OVER_ALL else group.name
    means = [mean_text(group.means.get(baseline)) for baseline in baselines]
    return (name, str(group.kernels), counted_statuses(group.statuses), *means)


def _losing(figures: SuiteFigures) -> Iterator[Section]:
    for baseline in figures.baselines:
        compared = [line for line in figures.lines if line.ratio(baseline) is not None]
        if not compared:
            continue
        losing = figures.losing(baseline)
        said = (
            f"{len(losing)} of {_kernels(len(compared))}: the whole interval lies below 1. The worst first."
        )
        if not losing:
            said = f"None of {_kernels(len(compared))}."
        table = Table(
            ("kernel", "pipeline", figures.subject, baseline, "ratio"),
            tuple(
                (
                    each.line.kernel,
                    each.line.outcome.pipeline,
                    format_time(each.line.median_ns(figures.subject)),
                    format_time(each.line.median_ns(baseline)),
                    format_ratio(each.ratio.value, each.ratio.low, each.ratio.high),
                )
                for each in losing
            ),
            (Align.LEFT, Align.LEFT, Align.RIGHT, Align.RIGHT, Align.LEFT),
        )
        yield Section(f"What loses to {baseline}", (said, table) if losing else (said,))


def _causes(figures: SuiteFigures) -> Iterator[Section]:
    if not figures.causes:
        return
    cells = tuple(
        (str(cause.status), str(len(cause.kernels)), cause.message, ", ".join(cause.kernels))
        for cause in figures.causes
    )
    headings = ("status", "kernels", "cause", "which")
    aligns = (Align.LEFT, Align.RIGHT, Align.LEFT, Align.LEFT)
    yield Section("What is not verified, by cause", (Table(headings, cells, aligns),))


def _lines(figures: SuiteFigures) -> Iterator[Section]:
    names = [figures.subject, *figures.baselines] if figures.subject else []
    timed = [name for name in names if any(line.median_ns(name) is not None for line in figures.lines)]
    compared = [name for name in timed if any(line.ratio(name) for line in figures.lines)]
    headings = (
        *("kernel", "pipeline", "status", "check", "error / tolerance"),
        *timed,
        *(f"{name} / {figures.subject}" for name in compared),
    )
    aligns = (*[Align.LEFT] * 4, Align.RIGHT, *[Align.RIGHT] * len(timed), *[Align.LEFT] * len(compared))
    cells = tuple(_line_cells(line, timed, compared) for line in figures.lines)
    notes = [f"{name}: not there for {text}" for name in names for text in _absent(figures.lines, name)]
    yield Section("Every kernel", (Table(headings, cells, aligns), *([Items(tuple(notes))] if notes else [])))


def _line_cells(line: Line, timed: Sequence[str], compared: Sequence[str]) -> tuple[str, ...]:
    worst = line.error_over_tolerance
    ratios = [line.ratio(name) for name in compared]
    return (
        line.kernel,
        line.outcome.pipeline,
        str(line.outcome.status),
        line.check,
        "" if worst is None else significant(worst, 3),
        *(format_time(line.median_ns(name)) for name in timed),
        *("" if ratio is None else format_ratio(ratio.value, ratio.low, ratio.high) for ratio in ratios),
    )


def _absent(lines: Sequence[Line], name: str) -> Iterator[str]:
    """Name the kernels that an implementation could not be had for or was wrong on, by reason."""
    reasons: dict[str, list[str]] = {}
    for line in lines:
        row = line.rows.get(name)
        if row is not None and not row.check.timeable and line.outcome.status is Status.VERIFIED:
            reasons.setdefault(f"{row.check}: {note_text(row.note)}", []).append(line.kernel)
    for reason, kernels in reasons.items():
        yield f"{shortened(kernels)} ({reason})"


def _remarks(run: SuiteRun) -> Iterator[Section]:
    found: dict[str, dict[str, str]] = {}
    for kernel in run.kernels:
        if kernel.unreadable:
            found.setdefault("records", {})[kernel.name] = kernel.unreadable
        ended = kernel.outcome.status is Status.VERIFIED
        for remark in remarks(kernel.stored) if kernel.stored is not None and ended else ():
            found.setdefault(remark.subject, {}).setdefault(kernel.name, remark.text)
    if found:
        texts = [f"{subject}, {_kernels(len(about))}: {_told(about)}" for subject, about in found.items()]
        yield Section("Remarks", (Items(tuple(texts)),))


def _told(about: Mapping[str, str]) -> str:
    texts = list(dict.fromkeys(about.values()))
    if len(texts) == 1:
        return f"{texts[0]} ({shortened(about)})"
    told = [f"{name}: {text}" for name, text in about.items()]
    more = [f"and {len(told) - _TOLD} more"] if len(told) > _TOLD else []
    return "; ".join([*told[:_TOLD], *more])


def _kernels(number: int) -> str:
    return f"{number} kernel{'' if number == 1 else 's'}"
