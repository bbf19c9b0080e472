"""Writes a run as Markdown, for a pull request or an issue: tables, with their notes right below them.

Knows how Markdown is escaped. Text from outside is never able to open a table, a link or a mention.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kernelmark.records import Check, Role, Row, StoredRun
from kernelmark.report.columns import CHECK_MARKS, NOTES, SHOWN, Align, Column, filled_columns
from kernelmark.report.facts import run_facts
from kernelmark.report.groups import CaseRows, by_op
from kernelmark.report.notes import row_notes
from kernelmark.report.params import param_texts
from kernelmark.report.plain import one_line, visible
from kernelmark.report.remarks import check_counts, remarks
from kernelmark.text import counted
from kernelmark.units import TimeScale, format_percent, significant

__all__ = ["code", "escape", "escape_line", "markdown_report", "table"]

_SPECIAL = re.compile(r"[\\`*|~$]|<(?=[A-Za-z/!?])|&(?=[#\w]+;)|\](?=[(\[])|(?<![^\W_])_|_(?![^\W_])")
"""What opens or closes something inside a line: an underscore inside a word does not, nor a bracket alone."""
_OPENS_BLOCK = re.compile(r"^([\[#+>=:-])|^(\d+)([.)])")
_MENTION = re.compile(r"(?<![\w.])@(?=\w)")
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

_LISTED_KERNELS = 12

_CHECK_HELP = {
    Check.VERIFIED: "all outputs were compared with the reference",
    Check.PARTIAL: "some outputs were compared with the reference; the note names the others",
    Check.CUSTOM: "the case's own assertion checked the outputs; the note says how",
    Check.UNVERIFIED: "timed, but nothing vouches for its answers: it has no ratio",
    Check.NONCOMPARABLE: "timed, but it means to compute something else: it has no ratio",
    Check.FAILED: "its answers are wrong, so it was not timed",
    Check.UNAVAILABLE: "it could not be had here; the note says why",
}


def markdown_report(run: StoredRun) -> str:
    """Write ``run`` as a Markdown document."""
    parts = [
        f"# Kernel benchmark on {escape(run.header.device.name)}",
        *_opening(run),
        table(("", ""), [(f"**{label}**", escape(one_line(text))) for label, text in run_facts(run)]),
        *_how_to_read(run.rows),
        *_ops(run.rows),
        *_checks(run.rows),
        *_remarks(run),
    ]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Write ``text`` so that Markdown shows it as it is inside a line, also in a table's cell."""
    marked = _SPECIAL.sub(lambda found: f"\\{found[0]}", visible(text).strip())
    return _MENTION.sub("@<!-- -->", marked)


def escape_line(text: str) -> str:
    """Write ``text`` so that Markdown shows it as it is where a line or the text of a list item starts."""
    marked = escape(text)
    opens = _OPENS_BLOCK.match(marked)
    if opens is None:
        return marked
    number = opens[2] or ""
    return f"{number}\\{marked[len(number) :]}"


def code(text: str) -> str:
    """Write ``text`` as code where code can hold it, in a table's cell too, else as escaped text."""
    shown = visible(text)
    if not shown or shown != shown.strip() or any(char in shown for char in "`|\\"):
        return escape(text)
    return f"`{shown}`"


def table(headings: Sequence[str], cells: Iterable[Sequence[str]], aligns: Sequence[Align] = ()) -> str:
    """Lay out a table; the texts are escaped already."""
    rules = ["---:" if align is Align.RIGHT else "---" for align in aligns] or ["---"] * len(headings)
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, rules, *cells))


# --- the parts of the document ---------------------------------------------------------------------------


def _opening(run: StoredRun) -> Iterator[str]:
    if not run.rows:
        yield "This run holds no rows."
    else:
        cases = {(row.op, row.case) for row in run.rows}
        counts = ", ".join(f"{count} {check}" for check, count in check_counts(run.rows).items())
        yield f"**{counted(len(run.rows), 'row')}** of {counted(len(cases), 'case')}: {counts}."
    found = remarks(run)
    if found:
        yield (
            f"**{counted(len(found), 'thing')} to look at before believing the numbers:**"
            f" {', '.join(dict.fromkeys(remark.subject for remark in found))} (see [Remarks](#remarks))."
        )


def _how_to_read(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    filled = set(filled_columns(rows)) - {NOTES}
    lines = [f"- **{column.heading}**: {column.help}" for column in SHOWN if column in filled]
    for check in check_counts(rows):
        mark = f"{CHECK_MARKS[check]} " if check in CHECK_MARKS else ""
        lines.append(f"- **{mark}{check}**: {_CHECK_HELP[check]}.")
    yield "<details><summary>How to read this</summary>"
    yield "\n".join(lines)
    yield "</details>"


def _ops(rows: Iterable[Row]) -> Iterator[str]:
    for op in by_op(rows):
        yield f"## {code(op.op) if op.op is not None else 'Comparisons'}"
        columns = filled_columns(op.rows)
        for case in op.cases:
            yield from _case(case, columns)


def _case(case: CaseRows, columns: Sequence[Column]) -> Iterator[str]:
    yield f"### {code(case.case)}"
    params = param_texts(case.params)
    if params:
        yield table([escape(name) for name in params], [[code(value) for value in params.values()]])
    numbers: dict[str, int] = {}
    for row in case.rows:
        for note in row_notes(row):
            numbers.setdefault(note, len(numbers) + 1)
    scale = case.scale
    cells = [[_cell(column, row, scale, numbers) for column in columns] for row in case.rows]
    yield table([column.heading for column in columns], cells, [column.align for column in columns])
    if numbers:
        yield "\n".join(f"{number}. {escape_line(note)}" for note, number in numbers.items())
    yield from _kernels(case)


def _cell(column: Column, row: Row, scale: TimeScale, numbers: dict[str, int]) -> str:
    if column is NOTES:
        return " ".join(str(numbers[note]).translate(_SUPERSCRIPTS) for note in row_notes(row))
    text = column.text(row, scale)
    if column.key == "implementation":
        # asterisks around nothing that can be seen would stand there as asterisks
        return f"**{code(text)}**" if row.role is Role.OURS and text.strip() else code(text)
    if column.key == "check" and row.check in CHECK_MARKS:
        return f"**{escape(text)}**"
    return escape(text)


def _kernels(case: CaseRows) -> Iterator[str]:
    """List what ran on the device, so that a library call in disguise can be seen next to the baselines."""
    cells = []
    for row in case.rows:
        kernels = row.timing.kernels if row.timing else ()
        name = code(row.implementation)
        for kernel in kernels[:_LISTED_KERNELS]:
            share = format_percent(kernel.share)
            cells.append((name, code(kernel.name), kernel.kind, significant(kernel.per_call, 3), share))
        if len(kernels) > _LISTED_KERNELS:
            cells.append((name, f"and {len(kernels) - _LISTED_KERNELS} more", "", "", ""))
    if cells:
        yield "<details><summary>What ran on the device</summary>"
        headings = ("implementation", "name", "kind", "per call", "share of device busy")
        yield table(headings, cells, (*[Align.LEFT] * 3, *[Align.RIGHT] * 2))
        yield "</details>"


def _checks(rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield "## Checks"
        cells = [(check.value, str(count)) for check, count in check_counts(rows).items()]
        yield table(("check", "rows"), cells, (Align.LEFT, Align.RIGHT))


def _remarks(run: StoredRun) -> Iterator[str]:
    yield "## Remarks"
    found = remarks(run)
    if not found:
        yield "Nothing in the record makes this run suspicious."
        return
    yield "\n".join(f"- **{remark.subject}**: {escape(remark.text)}" for remark in found)
