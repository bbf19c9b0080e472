"""Two runs on one page: what is not in the later one as it was in the earlier."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kernelmark.errors import UsageError
from kernelmark.records import Difference, Ratio, StoredRun, refuse_unlike
from kernelmark.report import pages
from kernelmark.report.formats import Format
from kernelmark.report.pages import Items, Page, Section, Table
from kernelmark.stats.changes import Changes, RatioChange, changes
from kernelmark.text import counted
from kernelmark.units import format_ratio

__all__ = ["render_against"]

_DOUBT = (
    "A ratio was measured beside its baseline, so it is compared, and times are not. Each interval is of one process,"
    " and another process may move a ratio; where it matters, time the old code in the same run, as one more"
    " implementation."
)


def render_against(
    run: StoredRun,
    other: StoredRun,
    format: Format,  # noqa: A002 - the word the command line uses too
    *,
    ignore: Iterable[str] = (),
) -> tuple[str, bool]:
    """Write what is not in ``run`` as it was in ``other``, for a console or as Markdown; and whether it is worse.

    Raises:
        UsageError: another format is asked for, or ``ignore`` names what no run holds.
        RecordError: the runs' ratios mean different things, and not only in what ``ignore`` names.
    """
    if format in (Format.JSON, Format.CSV):
        raise UsageError(f"--against with --format {format}: two runs are compared as console or markdown")
    told = refuse_unlike(other.header, run.header, times=False, ignore=ignore)
    found = changes(other.rows, run.rows)
    page = Page(f"{run.header.run} against {other.header.run}", tuple(_sections(run, other, told, found)))
    return (pages.page_markdown if format is Format.MARKDOWN else pages.page_text)(page), found.worse


def _sections(
    run: StoredRun, other: StoredRun, told: Iterable[Difference], found: Changes
) -> Iterator[Section]:
    first = f"{other.header.run} ({other.header.started}) is before, {run.header.run} after."
    yield Section("", (first, _DOUBT))
    if told := tuple(told):
        unlike = tuple(f"{each.key}: {each.before} before, {each.after} after" for each in told)
        yield Section("What is not the same in these runs", (Items(unlike),))
    cells = tuple(
        (
            each.case,
            each.implementation,
            each.before or "not there",
            each.after or "not there",
            "worse" if each.worse else "better",
        )
        for each in found.checks
    )
    headings = ("case", "implementation", "before", "after", "")
    yield Section("Checks", (Table(headings, cells) if cells else "No row's check changed.",))
    for name in dict.fromkeys(each.baseline for each in found.ratios):
        yield _ratios(name, [each for each in found.ratios if each.baseline == name])


def _ratios(baseline: str, found: list[RatioChange]) -> Section:
    verdicts = [each.verdict for each in found]
    said = (
        f"Of {counted(len(found), 'case')} ours is faster beside {baseline} than before in"
        f" {verdicts.count('faster')} and slower in {verdicts.count('slower')}, where the intervals do not overlap;"
        f" in {verdicts.count('moved')} more {baseline} itself takes another time, which decides nothing."
    )
    cells = tuple(
        (each.case, *(_ratio(ratio) for ratio in (each.before, each.after)), _own(each), each.verdict)
        for each in found
    )
    return Section(
        f"Ratio to {baseline}",
        (said, Table(("case", "before", "after", f"{baseline}'s own time", "change"), cells)),
    )


def _ratio(ratio: Ratio | None) -> str:
    return "" if ratio is None else format_ratio(ratio.value, ratio.low, ratio.high)


def _own(change: RatioChange) -> str:
    return "" if change.moved is None else f"x {change.moved:.2f}"
