"""Two runs on one page: what is not in the later one as it was in the earlier."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kernelmark.errors import UsageError
from kernelmark.records import Ratio, StoredRun, refuse_unlike
from kernelmark.report import pages
from kernelmark.report.formats import Format
from kernelmark.report.pages import Items, Page, Section, Table
from kernelmark.stats.changes import Changes, RatioChange, changes
from kernelmark.text import counted
from kernelmark.units import format_ratio

__all__ = ["page_of_two", "ratio_section", "refuse_format", "render_against"]

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
    refuse_format(format)
    told = refuse_unlike(other.header, run.header, times=False, ignore=ignore)
    old, new = ({(row.op, row.case, row.implementation): row for row in each.rows} for each in (other, run))
    found = changes(old, new)
    unlike = [f"{each.key}: {each.before} before, {each.after} after" for each in told]
    before = (other.header.run, other.header.started)
    return page_of_two(run.header.run, before, unlike, _sections(found), format), found.worse


def refuse_format(format: Format) -> None:  # noqa: A002 - as above
    """Refuse a format for programs.

    Raises:
        UsageError: it is one.
    """
    if format in (Format.JSON, Format.CSV):
        raise UsageError(f"--against with --format {format}: two runs are compared as console or markdown")


def page_of_two(
    after: str,
    before: tuple[str, str],
    unlike: Sequence[str],
    sections: Iterable[Section],
    format: Format,  # noqa: A002 - as above
) -> str:
    """Write a page of two runs: the later's name, the earlier's with its time, and how they differ come first."""
    name, started = before
    opening = f"{name} ({started}) is before, {after} after."
    differing = [Section("What is not the same in these runs", (Items(tuple(unlike)),))] if unlike else []
    page = Page(f"{after} against {name}", (Section("", (opening, _DOUBT)), *differing, *sections))
    return pages.page_markdown(page) if format is Format.MARKDOWN else pages.page_text(page)


def _sections(found: Changes) -> Iterator[Section]:
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
        yield ratio_section([each for each in found.ratios if each.baseline == name])


def ratio_section(found: Sequence[RatioChange], *more: str, one: str = "case") -> Section:
    """Lay out the ratios to one baseline, one at least, with what ``more`` there is to say of them."""
    baseline = found[0].baseline
    verdicts = [each.verdict for each in found]
    said = (
        f"Of {counted(len(found), one)} ours is faster beside {baseline} than before in"
        f" {verdicts.count('faster')} and slower in {verdicts.count('slower')}, where the intervals do not overlap;"
        f" in {verdicts.count('moved')} more {baseline} itself takes another time, which decides nothing."
    )
    cells = tuple(
        (each.case, *(_ratio(ratio) for ratio in (each.before, each.after)), _own(each), each.verdict)
        for each in found
    )
    headings = (one, "before", "after", f"{baseline}'s own time", "change")
    return Section(f"Ratio to {baseline}", (*more, said, Table(headings, cells)))


def _ratio(ratio: Ratio | None) -> str:
    return "" if ratio is None else format_ratio(ratio.value, ratio.low, ratio.high)


def _own(change: RatioChange) -> str:
    return "" if change.moved is None else f"x {change.moved:.2f}"
