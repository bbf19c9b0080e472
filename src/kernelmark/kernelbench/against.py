"""Two runs of a suite beside each other: whose status changed, and whose ratio surely did.

Times of two runs are not compared, since the machine may have been another: each kernel's ratio to a baseline is,
which was measured beside it. A change is one where the two intervals have nothing in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kernelmark.kernelbench.figures import Line, SuiteFigures, figures_of
from kernelmark.kernelbench.results import SuiteRun
from kernelmark.kernelbench.statuses import Status
from kernelmark.kernelbench.suite_page import counted_statuses, facts_of, mean_text
from kernelmark.records import Metadata, Ratio, Unlike, refuse_unlike
from kernelmark.report.pages import Items, Page, Section, Table
from kernelmark.stats import mean_ratio
from kernelmark.units import format_ratio

__all__ = ["Change", "Pair", "against_page", "change_of", "pairs_of"]

_THE_SAME = ("Device", "Software", "Protocol", "Timer", "Caches", "Threads", "Sizes", "Compiled", "Jobs")
"""What may differ between two runs whose figures mean the same; said where it does."""
_NOT_RUN = "not run"

OF_SUITES: tuple[Metadata, ...] = (
    Metadata("dtype", str, Unlike.NOT_COMPARED),
    Metadata("sizes", str, Unlike.NOT_COMPARED),
    Metadata("infer_shapes", bool, Unlike.NOT_COMPARED),
    Metadata("device", str, Unlike.NOT_COMPARED),
)
"""What two runs of suites must share, besides what the records of their kernels must."""


class Change(StrEnum):
    """What became of a ratio from one run to the other."""

    FASTER = "faster"
    SLOWER = "slower"
    NONE = ""
    """The intervals overlap, or one of the ratios is not there."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One kernel in two runs, the other run's first."""

    kernel: str
    before: Line | None
    after: Line | None

    @property
    def statuses(self) -> tuple[str, str]:
        """The kernel's status in each."""
        before, after = (line.outcome.status if line else _NOT_RUN for line in (self.before, self.after))
        return before, after

    def ratios(self, baseline: str) -> tuple[Ratio | None, Ratio | None]:
        """The ratio to ``baseline`` in each."""
        before, after = (line.ratio(baseline) if line else None for line in (self.before, self.after))
        return before, after


def change_of(before: Ratio | None, after: Ratio | None) -> Change:
    """Say whether a ratio changed: only where both intervals are there and do not overlap."""
    if before is None or after is None or before.low is None or after.low is None:
        return Change.NONE
    assert before.high is not None
    assert after.high is not None
    if after.low > before.high:
        return Change.FASTER
    return Change.SLOWER if after.high < before.low else Change.NONE


def pairs_of(before: SuiteFigures, after: SuiteFigures) -> tuple[Pair, ...]:
    """Give every kernel of either run, in the order of the later one."""
    earlier, later = ({line.kernel: line for line in each.lines} for each in (before, after))
    return tuple(Pair(name, earlier.get(name), later.get(name)) for name in dict.fromkeys([*later, *earlier]))


def against_page(run: SuiteRun, other: SuiteRun, *, ignore: Iterable[str] = ()) -> Page:
    """Arrange what is not in ``run`` as it was in ``other``.

    Raises:
        RecordError: their figures mean different things; names in what they differ.
        UsageError: ``ignore`` names what no run holds.
    """
    _refuse_unlike(other, run, tuple(ignore))
    after, before = figures_of(run), figures_of(other)
    pairs = pairs_of(before, after)
    sections = [
        Section("", (f"{other.header.run} ({other.header.started}) is before, {run.header.run} after.",)),
        *_unlike(run, other),
        _statuses(before, after, pairs),
        *(section for name in after.baselines for section in _ratios(name, pairs)),
    ]
    return Page(f"{run.header.run} against {other.header.run}", tuple(sections))


def _refuse_unlike(before: SuiteRun, after: SuiteRun, ignore: Sequence[str]) -> None:
    of_suites = {each.key for each in OF_SUITES}
    refuse_unlike(
        before.header,
        after.header,
        times=False,
        ignore=[name for name in ignore if name in of_suites],
        keys=OF_SUITES,
    )
    earlier = {kernel.name: kernel.stored for kernel in before.kernels}
    of_records = [name for name in ignore if name not in of_suites]
    for kernel in after.kernels:
        old, new = earlier.get(kernel.name), kernel.stored
        timed = old and new and not old.header.protocol.verify_only and not new.header.protocol.verify_only
        if old is not None and new is not None and timed:
            refuse_unlike(old.header, new.header, times=False, ignore=of_records)


def _unlike(run: SuiteRun, other: SuiteRun) -> Iterator[Section]:
    after, before = dict(facts_of(run)), dict(facts_of(other))
    told = [
        f"{label}: {before.get(label) or 'nothing'} before, {after.get(label) or 'nothing'} after"
        for label in _THE_SAME
        if before.get(label) != after.get(label)
    ]
    if run.header.dtype != other.header.dtype:  # which was asked for
        told.insert(0, f"Element type: {other.header.dtype} before, {run.header.dtype} after")
    if told:
        yield Section("What is not the same in these runs", (Items(tuple(told)),))


def _statuses(before: SuiteFigures, after: SuiteFigures, pairs: Sequence[Pair]) -> Section:
    counts = (
        f"Before: {counted_statuses(before.groups[0].statuses)}.",
        f"After: {counted_statuses(after.groups[0].statuses)}.",
    )
    changed = [pair for pair in pairs if pair.statuses[0] != pair.statuses[1]]
    if not changed:
        return Section("Statuses", (*counts, "No kernel's status changed."))
    cells = tuple((pair.kernel, *pair.statuses, _better(pair), _message(pair)) for pair in changed)
    return Section("Statuses", (*counts, Table(("kernel", "before", "after", "", "why"), cells)))


def _better(pair: Pair) -> str:
    if pair.before is None or pair.after is None:
        return ""
    worse = pair.after.outcome.status.rank > pair.before.outcome.status.rank
    return "worse" if worse else "better"


def _message(pair: Pair) -> str:
    return (
        pair.after.outcome.message if pair.after and pair.after.outcome.status is not Status.VERIFIED else ""
    )


def _ratios(baseline: str, pairs: Sequence[Pair]) -> Iterator[Section]:
    both = [(pair, *pair.ratios(baseline)) for pair in pairs if any(pair.ratios(baseline))]
    if not both:
        return
    common = [(before, after) for _, before, after in both if before is not None and after is not None]
    parts: list[str | Items | Table] = []
    if common:
        means = [mean_ratio([pair[which] for pair in common]) for which in (0, 1)]
        told = " before, ".join(map(mean_text, means))
        parts.append(f"Over the kernels that have one in both: {told} after.")
    changes = [change_of(before, after) for _, before, after in both]
    parts.append(
        f"{changes.count(Change.FASTER)} faster and {changes.count(Change.SLOWER)} slower beside {baseline} than"
        " before, where the intervals do not overlap; each interval is of one process, so another one may move it"
    )
    cells = tuple(
        (pair.kernel, _text(before), _text(after), str(change))
        for (pair, before, after), change in zip(both, changes, strict=True)
    )
    parts.append(Table(("kernel", "before", "after", "change"), cells))
    yield Section(f"Ratio to {baseline}", tuple(parts))


def _text(ratio: Ratio | None) -> str:
    return "" if ratio is None else format_ratio(ratio.value, ratio.low, ratio.high)
