"""A stored run as a page, for a pull request or an issue: an overview, tables with their notes, what to look at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kernelmark.records import Check, Ratio, Role, Row, StoredRun
from kernelmark.report.columns import CHECK_MARKS, NOTES, SHOWN, Align, Column, filled_columns
from kernelmark.report.facts import run_facts
from kernelmark.report.notes import row_notes
from kernelmark.report.pages import (
    Code,
    Details,
    Items,
    Line,
    Link,
    Page,
    Part,
    Section,
    Strong,
    Table,
    fields,
)
from kernelmark.report.remarks import check_counts, remarks
from kernelmark.report.rows import CaseRows, by_op, overview_lines, param_texts
from kernelmark.stats import overview
from kernelmark.text import counted
from kernelmark.units import TimeScale, format_percent, format_ratio, significant

__all__ = ["run_page"]

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_LISTED_KERNELS = 12
_EXTREMES = 10
"""So many of the slowest and of the fastest cases stand at the head of a report, where there are more than twice."""

_CHECK_HELP = {
    Check.VERIFIED: "all outputs were compared with the reference",
    Check.PARTIAL: "some outputs were compared with the reference; the note names the others",
    Check.CUSTOM: "the case's own assertion checked the outputs; the note says how",
    Check.UNVERIFIED: "timed, but nothing vouches for its answers: it has no ratio",
    Check.NONCOMPARABLE: "timed, but it means to compute something else: it has no ratio",
    Check.FAILED: "its answers are wrong, so it was not timed",
    Check.UNAVAILABLE: "it could not be had here; the note says why",
}


def run_page(run: StoredRun) -> Page:
    """Arrange ``run``."""
    head = (*_opening(run), fields(run_facts(run)), *_how_to_read(run.rows))
    return Page(
        f"Kernel benchmark on {run.header.device.name}",
        (
            Section("", head),
            *_overview(run.rows),
            *_ops(run.rows),
            *_checks(run.rows),
            Section("Remarks", (_remarks(run),)),
        ),
    )


# --- the parts -------------------------------------------------------------------------------------------


def _opening(run: StoredRun) -> Iterator[Line]:
    if not run.rows:
        yield "This run holds no rows."
    else:
        cases = {(row.op, row.case) for row in run.rows}
        counts = ", ".join(f"{count} {check}" for check, count in check_counts(run.rows).items())
        yield Strong(counted(len(run.rows), "row")), f" of {counted(len(cases), 'case')}: {counts}."
    if found := remarks(run):
        subjects = ", ".join(dict.fromkeys(remark.subject for remark in found))
        things = counted(len(found), "thing")
        yield (
            Strong(f"{things} to look at before believing the numbers:"),
            f" {subjects} (see ",
            Link("Remarks", "#remarks"),
            ").",
        )


def _overview(rows: Sequence[Row]) -> Iterator[Section]:
    found = [each for each in overview(rows) if each.cases > 1]
    if not found:
        return
    parts: list[Part] = [Items(tuple(overview_lines(rows)))]
    for each in found:
        if len(each.ratios) > 2 * _EXTREMES:
            slowest, fastest = each.ratios[:_EXTREMES], each.ratios[: -_EXTREMES - 1 : -1]
            parts += [
                Details(f"The slowest beside {each.baseline}", (_extremes(slowest),)),
                Details(f"The fastest beside {each.baseline}", (_extremes(fastest),)),
            ]
    yield Section("Overview", tuple(parts))


def _extremes(ratios: Sequence[tuple[str, Ratio]]) -> Table:
    cells = tuple((Code(case), format_ratio(each.value, each.low, each.high)) for case, each in ratios)
    return Table(("case", "ratio [low, high]"), cells)


def _how_to_read(rows: Sequence[Row]) -> Iterator[Part]:
    if not rows:
        return
    filled = set(filled_columns(rows)) - {NOTES}
    lines: list[Line] = [(Strong(column.heading), f": {column.help}") for column in SHOWN if column in filled]
    for check in check_counts(rows):
        mark = f"{CHECK_MARKS[check]} " if check in CHECK_MARKS else ""
        lines.append((Strong(f"{mark}{check}"), f": {_CHECK_HELP[check]}."))
    yield Details("How to read this", (Items(tuple(lines)),))


def _ops(rows: Iterable[Row]) -> Iterator[Section]:
    for op in by_op(rows):
        yield Section(Code(op.op) if op.op is not None else "Comparisons", ())
        columns = filled_columns(op.rows)
        for case in op.cases:
            yield Section(Code(case.case), tuple(_case(case, columns)), level=3)


def _case(case: CaseRows, columns: Sequence[Column]) -> Iterator[Part]:
    params = param_texts(case.params)
    if params:
        yield Table(tuple(params), (tuple(map(Code, params.values())),))
    numbers: dict[str, int] = {}
    for row in case.rows:
        for note in row_notes(row):
            numbers.setdefault(note, len(numbers) + 1)
    scale = case.scale
    cells = tuple(tuple(_cell(column, row, scale, numbers) for column in columns) for row in case.rows)
    yield Table(tuple(column.heading for column in columns), cells, tuple(column.align for column in columns))
    if numbers:
        yield Items(tuple(numbers), numbered=True)
    yield from _kernels(case)


def _cell(column: Column, row: Row, scale: TimeScale, numbers: dict[str, int]) -> Line:
    if column is NOTES:
        return " ".join(str(numbers[note]).translate(_SUPERSCRIPTS) for note in row_notes(row))
    text = column.text(row, scale)
    if column.key == "implementation":
        return Strong(Code(text)) if row.role is Role.OURS else Code(text)
    return Strong(text) if column.key == "check" and row.check in CHECK_MARKS else text


def _kernels(case: CaseRows) -> Iterator[Details]:
    """List what ran on the device, so that a library call in disguise can be seen next to the baselines."""
    cells: list[tuple[Line, ...]] = []
    for row in case.rows:
        kernels = row.timing.kernels if row.timing else ()
        name = Code(row.implementation)
        for kernel in kernels[:_LISTED_KERNELS]:
            share = format_percent(kernel.share)
            cells.append((name, Code(kernel.name), kernel.kind, significant(kernel.per_call, 3), share))
        if len(kernels) > _LISTED_KERNELS:
            cells.append((name, f"and {len(kernels) - _LISTED_KERNELS} more", "", "", ""))
    if cells:
        headings = ("implementation", "name", "kind", "per call", "share of device busy")
        aligns = (*[Align.LEFT] * 3, *[Align.RIGHT] * 2)
        yield Details("What ran on the device", (Table(headings, tuple(cells), aligns),))


def _checks(rows: Sequence[Row]) -> Iterator[Section]:
    if rows:
        cells = tuple((check.value, str(count)) for check, count in check_counts(rows).items())
        yield Section("Checks", (Table(("check", "rows"), cells, (Align.LEFT, Align.RIGHT)),))


def _remarks(run: StoredRun) -> Part:
    found = remarks(run)
    if not found:
        return "Nothing in the record makes this run suspicious."
    return Items(tuple((Strong(remark.subject), f": {remark.text}") for remark in found))
