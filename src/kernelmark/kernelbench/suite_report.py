"""The documents of a suite's run: its page, the same as JSON and CSV, and the page of two runs beside each other.

They arrange figures and records; figures come from :mod:`kernelmark.kernelbench.figures`. What of two runs
is compared, and when a ratio has changed, is as for any two runs (:mod:`kernelmark.stats.changes`).
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from kernelmark.kernelbench.figures import Group, Line, SuiteFigures, figures_of
from kernelmark.kernelbench.results import HEADER, SuiteRun, read_suite_run
from kernelmark.kernelbench.statuses import Status
from kernelmark.records import Ratio, StoredRun, Unlike, refuse_unlike
from kernelmark.report import Format, pages, write_report
from kernelmark.report.against import page_of_two, ratio_section, refuse_format
from kernelmark.report.columns import Align, Value
from kernelmark.report.facts import run_facts
from kernelmark.report.formats import csv_table
from kernelmark.report.notes import note_text
from kernelmark.report.pages import Items, Page, Section, Table
from kernelmark.report.plain import shortened
from kernelmark.report.remarks import remarks
from kernelmark.stats import MeanRatio, mean_ratio
from kernelmark.stats.changes import RatioChange, changes, worse
from kernelmark.text import counted
from kernelmark.units import format_bytes, format_ratio, format_time, significant

__all__ = ["is_suite_run", "render_against", "render_suite", "write_suite_reports"]

SCHEMA = "kernelmark.suite"
_FILES = {Format.MARKDOWN: "suite.md", Format.JSON: "suite.json", Format.CSV: "suite.csv"}
_OF_THE_MACHINE = ("Device", "Software", "Platform", "Revision", "Protocol", "Timer", "Caches")
"""What all kernels' runs should say alike."""
_THE_SAME = ("Device", "Software", "Protocol", "Timer", "Caches", "Threads", "Sizes", "Compiled", "Jobs")
"""What may differ between two runs whose figures mean the same; said where it does."""
_OF_SUITES: Mapping[str, Unlike] = dict.fromkeys(
    ("dtype", "sizes", "infer_shapes", "device"), Unlike.NOT_COMPARED
)
"""What two runs of suites must share, besides what the records of their kernels must."""
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


def is_suite_run(path: Path) -> bool:
    """Whether ``path`` is the folder of a suite's run."""
    return (path / HEADER).is_file()


def render_suite(run: SuiteRun, format: Format) -> str:  # noqa: A002 - the word the command line uses too
    """Write ``run`` in ``format``."""
    figures = figures_of(run)
    match format:
        case Format.JSON:
            return _json(run, figures)
        case Format.CSV:
            return _csv(figures)
        case _:
            return _written(_page(run, figures), format)


def render_against(
    run: SuiteRun,
    other: SuiteRun,
    format: Format,  # noqa: A002 - as above
    *,
    ignore: Iterable[str] = (),
) -> tuple[str, bool]:
    """Write what is not in ``run`` as it was in ``other``, as Markdown or for a console; and whether it is worse.

    Raises:
        UsageError: another format is asked for, or ``ignore`` names what no run holds.
        RecordError: the runs' figures mean different things, and not only in what ``ignore`` names.
    """
    refuse_format(format)
    _refuse_unlike(other, run, tuple(ignore))
    after, before = figures_of(run), figures_of(other)
    old, new = (
        {(None, line.kernel, name): row for line in each.lines for name, row in line.rows.items()}
        for each in (before, after)
    )
    ratios = [each for each in changes(old, new).ratios if each.baseline in after.baselines]
    statuses = tuple(_statuses_of_two(before, after))
    counts = (f"Before: {_statuses(before.groups[0])}.", f"After: {_statuses(after.groups[0])}.")
    table = Table(("kernel", "before", "after", "", "why"), statuses)
    of_each = ([each for each in ratios if each.baseline == name] for name in after.baselines)
    sections = (
        Section("Statuses", (*counts, table if statuses else "No kernel's status changed.")),
        *(ratio_section(each, *_over(each), one="kernel") for each in of_each if each),
    )
    is_worse = any(row[3] == "worse" for row in statuses) or any(each.verdict == "slower" for each in ratios)
    began = (other.header.run, other.header.started)
    return page_of_two(run.header.run, began, _unlike(run, other), sections, format), is_worse


def write_suite_reports(out: Path) -> tuple[Path, ...]:
    """Write ``suite.md``, ``suite.json`` and ``suite.csv`` beside the run in ``out``.

    Raises:
        RecordError: there is no run in ``out``, or a report cannot be written.
    """
    run = read_suite_run(out)
    return tuple(write_report(out / name, render_suite(run, each)) for each, name in _FILES.items())


def _written(page: Page, format: Format) -> str:  # noqa: A002 - as above
    return pages.page_markdown(page) if format is Format.MARKDOWN else pages.page_text(page)


def _ratio(found: Ratio | None) -> str:
    return "" if found is None else format_ratio(found.value, found.low, found.high)


def _mean(found: MeanRatio | None) -> str:
    return "" if found is None else f"{format_ratio(found.value, found.low, found.high)} of {found.count}"


def _statuses(group: Group) -> str:
    return ", ".join(f"{count} {status}" for status, count in group.statuses.items()) or "none"


# --- JSON and CSV --------------------------------------------------------------------------------------


def _json(run: SuiteRun, figures: SuiteFigures) -> str:
    document = {
        "schema": SCHEMA,
        "schema_version": pages.DOCUMENT_VERSION,
        "header": run.header.model_dump(mode="json"),
        "facts": _facts(run),
        "subject": figures.subject,
        "baselines": figures.baselines,
        "groups": [asdict(group) for group in figures.groups],
        "kernels": [_kernel(line, figures.baselines) for line in figures.lines],
        "causes": [asdict(cause) for cause in figures.causes],
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _kernel(line: Line, baselines: Sequence[str]) -> dict[str, object]:
    worst = line.error_over_tolerance
    ratios = {name: ratio for name in baselines if (ratio := line.ratio(name)) is not None}
    return {
        **asdict(line.outcome),
        "check": line.check,
        # JSON has no infinity and no NaN
        "error_over_tolerance": worst if worst is None or math.isfinite(worst) else str(worst),
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
            name: ratio.model_dump(mode="json", exclude={"block_ratios"}) for name, ratio in ratios.items()
        },
    }


def _csv(figures: SuiteFigures) -> str:
    headings = ["kernel", "pipeline", "status", "message", "wall_s", "check", "error_over_tolerance"]
    headings += [f"{name}_ns" for name in figures.names]
    for name in figures.baselines:
        headings += [f"{name}_ratio", f"{name}_ratio_low", f"{name}_ratio_high", f"{name}_verdict"]
    return csv_table(headings, [list(_csv_line(line, figures)) for line in figures.lines])


def _csv_line(line: Line, figures: SuiteFigures) -> Iterator[Value]:
    outcome = line.outcome
    yield from (outcome.kernel, outcome.pipeline, outcome.status.value, outcome.message, outcome.wall_s)
    yield from (line.check, line.error_over_tolerance)
    yield from map(line.median_ns, figures.names)
    for ratio in map(line.ratio, figures.baselines):
        yield from (ratio.value, ratio.low, ratio.high, ratio.verdict) if ratio else [None] * 4


# --- one run -------------------------------------------------------------------------------------------


def _page(run: SuiteRun, figures: SuiteFigures) -> Page:
    levels = dict.fromkeys(kernel.outcome.kernel.split("/", 1)[0] for kernel in run.kernels)
    everything = figures.groups[0]
    opening = f"{counted(everything.kernels, 'kernel')}: {_statuses(everything)}."
    return Page(
        f"KernelBench, {shortened(levels)}, {run.header.dtype}" if levels else "KernelBench",
        (
            Section("", (opening, Table(("", ""), tuple(_facts(run).items())))),
            _means(figures),
            *_losing(figures),
            *_causes(figures),
            _every_kernel(figures),
            *_remarks(run),
        ),
    )


def _facts(run: SuiteRun) -> dict[str, str]:
    """Give label and text of everything a reader must know about how the run was made."""
    header = run.header
    stored = [kernel.stored for kernel in run.kernels if kernel.stored is not None]
    compiled = "through torch.compile" if header.torch_compile else "imported as a whole"
    smoke = ", with the plain lowering to loops" if header.smoke else ""
    extra = f"; {shlex.join(header.extra)}" if header.extra else ""
    limit = format_bytes(header.memory_limit_bytes) or "no limit of memory"
    held = ", one timed at a time, with the processes of the others held" if header.benchmark else ""
    resumed = f", taken up again {', '.join(header.resumed)}" if header.resumed else ""
    ended = f" to {header.ended}" if header.ended else ", not ended"
    facts = {
        **{label: _alike(label, stored) for label in _OF_THE_MACHINE},
        "Threads": _threads(stored),
        "Sizes": "the model files' own" if header.infer_shapes else f"{header.sizes} sizes",
        "Compiled": f"{compiled}{smoke}{extra}",
        "Limits": f"{header.time_limit_s:g} s and {limit} a kernel",
        "Jobs": f"{header.jobs} kernels at a time{held}" if header.jobs > 1 else "",
        "Run": header.run,
        "Time": f"{header.started}{ended}{resumed}",
        "Command": shlex.join(header.command),
    }
    return {label: text for label, text in facts.items() if text}


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


def _means(figures: SuiteFigures) -> Section:
    timed = [name for name in figures.baselines if any(name in group.means for group in figures.groups)]
    cells = tuple(
        (
            "all of them" if group is figures.groups[0] else group.name,
            str(group.kernels),
            _statuses(group),
            *(_mean(group.means.get(baseline)) for baseline in timed),
        )
        for group in figures.groups
    )
    headings = ("pipeline", "kernels", "statuses", *(f"{name} / {figures.subject}" for name in timed))
    aligns = (Align.LEFT, Align.RIGHT, Align.LEFT, *[Align.LEFT] * len(timed))
    notes = (_ABOUT_RATIOS, _ABOUT_MEANS) if timed else ()
    return Section("Per pipeline", (*notes, Table(headings, cells, aligns)))


def _losing(figures: SuiteFigures) -> Iterator[Section]:
    for baseline in figures.baselines:
        compared = counted(sum(line.ratio(baseline) is not None for line in figures.lines), "kernel")
        losing = figures.losing(baseline)
        title = f"What loses to {baseline}"
        if losing:
            said = f"{len(losing)} of {compared}: the whole interval lies below 1. The worst first."
            cells = tuple(
                (
                    line.kernel,
                    line.outcome.pipeline,
                    format_time(line.median_ns(figures.subject)),
                    format_time(line.median_ns(baseline)),
                    _ratio(ratio),
                )
                for line, ratio in losing
            )
            headings = ("kernel", "pipeline", figures.subject, baseline, "ratio")
            aligns = (Align.LEFT, Align.LEFT, Align.RIGHT, Align.RIGHT, Align.LEFT)
            yield Section(title, (said, Table(headings, cells, aligns)))
        elif any(line.ratio(baseline) for line in figures.lines):
            yield Section(title, (f"None of {compared}.",))


def _causes(figures: SuiteFigures) -> Iterator[Section]:
    cells = tuple(
        (str(cause.status), str(len(cause.kernels)), cause.message, ", ".join(cause.kernels))
        for cause in figures.causes
    )
    aligns = (Align.LEFT, Align.RIGHT, Align.LEFT, Align.LEFT)
    if cells:
        table = Table(("status", "kernels", "cause", "which"), cells, aligns)
        yield Section("What is not verified, by cause", (table,))


def _every_kernel(figures: SuiteFigures) -> Section:
    lines = figures.lines
    timed = [name for name in figures.names if any(line.median_ns(name) is not None for line in lines)]
    compared = [name for name in timed if any(line.ratio(name) for line in lines)]
    over = (f"{name} / {figures.subject}" for name in compared)
    headings = ("kernel", "pipeline", "status", "check", "error / tolerance", *timed, *over)
    aligns = (*[Align.LEFT] * 4, *[Align.RIGHT] * (1 + len(timed)), *[Align.LEFT] * len(compared))
    cells = tuple(
        (
            line.kernel,
            line.outcome.pipeline,
            str(line.outcome.status),
            line.check,
            "" if line.error_over_tolerance is None else significant(line.error_over_tolerance, 3),
            *(format_time(line.median_ns(name)) for name in timed),
            *(_ratio(line.ratio(name)) for name in compared),
        )
        for line in lines
    )
    notes = tuple(f"{name}: not there for {text}" for name in figures.names for text in _absent(lines, name))
    return Section("Every kernel", (Table(headings, cells, aligns), *([Items(notes)] if notes else [])))


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
    texts = (f"{subject}, {counted(len(of), 'kernel')}: {_told(of)}" for subject, of in found.items())
    if found:
        yield Section("Remarks", (Items(tuple(texts)),))


def _told(about: Mapping[str, str]) -> str:
    texts = set(about.values())
    if len(texts) == 1:
        return f"{texts.pop()} ({shortened(about)})"
    told = [f"{name}: {text}" for name, text in about.items()]
    more = [f"and {len(told) - _TOLD} more"] if len(told) > _TOLD else []
    return "; ".join([*told[:_TOLD], *more])


# --- two runs ------------------------------------------------------------------------------------------


def _refuse_unlike(before: SuiteRun, after: SuiteRun, ignore: Sequence[str]) -> None:
    of_suites = [name for name in ignore if name in _OF_SUITES]
    of_records = [name for name in ignore if name not in of_suites]
    refuse_unlike(before.header, after.header, times=False, ignore=of_suites, keys=_OF_SUITES)
    earlier = {kernel.name: kernel.stored for kernel in before.kernels}
    for kernel in after.kernels:
        pair = [each.header for each in (earlier.get(kernel.name), kernel.stored) if each is not None]
        if len(pair) == 2 and not any(header.protocol.verify_only for header in pair):
            refuse_unlike(*pair, times=False, ignore=of_records)


def _unlike(run: SuiteRun, other: SuiteRun) -> tuple[str, ...]:
    after, before = _facts(run), _facts(other)
    asked = {"Element type": (other.header.dtype, run.header.dtype)}
    pairs = asked | {label: (before.get(label), after.get(label)) for label in _THE_SAME}
    return tuple(
        f"{label}: {old or 'nothing'} before, {new or 'nothing'} after"
        for label, (old, new) in pairs.items()
        if old != new
    )


def _statuses_of_two(before: SuiteFigures, after: SuiteFigures) -> Iterator[tuple[str, ...]]:
    """Give a row for each kernel whose status is another, in the order of the later run."""
    earlier, later = ({line.kernel: line.outcome for line in each.lines} for each in (before, after))
    for kernel in dict.fromkeys([*later, *earlier]):
        was, now = earlier.get(kernel), later.get(kernel)
        old, new = (each.status if each else None for each in (was, now))
        if old is not new:
            better = "" if old is None else "better"  # one not run before is neither
            change = "worse" if worse(old, new) else better
            why = now.message if now and new is not Status.VERIFIED else ""
            yield kernel, old or "not run", new or "not run", change, why


def _over(found: Sequence[RatioChange]) -> Iterator[str]:
    common = [(each.before, each.after) for each in found if each.before and each.after]
    if common:
        before, after = (_mean(mean_ratio(each)) for each in zip(*common, strict=True))
        yield f"Over the kernels that have one in both: {before} before, {after} after."
