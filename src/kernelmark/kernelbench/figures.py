"""A suite's run in figures: a line for each kernel, means for each pipeline, what loses, what is not verified and why.

Times, checks and ratios are the records' own. The one thing computed is the geometric mean of ratios.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kernelmark.kernelbench.results import KernelResult, SuiteRun
from kernelmark.kernelbench.statuses import Outcome, Status
from kernelmark.records import Check, OutputCheck, Ratio, Role, Row
from kernelmark.stats import MeanRatio, mean_ratio

__all__ = ["OVER_ALL", "Cause", "Group", "Line", "Losing", "SuiteFigures", "figures_of"]

OVER_ALL = "all"
_AT = re.compile(r"^\S+\.py:\d+: ")


@dataclass(frozen=True, slots=True)
class Line:
    """One kernel: what became of it, how it was checked, and what the engine recorded of its times."""

    outcome: Outcome
    rows: Mapping[str, Row]
    """Its implementations by name, the one that the others are compared with first."""

    @property
    def kernel(self) -> str:
        """The kernel's name without its ending."""
        return self.outcome.kernel.removesuffix(".py")

    @property
    def ours(self) -> Row | None:
        """The row that the others are compared with."""
        return next((row for row in self.rows.values() if row.role is Role.OURS), None)

    @property
    def check(self) -> str:
        """Say what was checked, and by which rule."""
        return "" if self.ours is None else _check(self.ours)

    @property
    def error_over_tolerance(self) -> float | None:
        """The worst error as a multiple of what is allowed."""
        found = [output.error_over_tolerance for output in self.ours.outputs] if self.ours else []
        return max((each for each in found if each is not None), default=None)

    def median_ns(self, name: str) -> float | None:
        """Give the median of an implementation; ``None`` where it was not timed."""
        row = self.rows.get(name)
        return None if row is None or row.timing is None else row.timing.device_busy.median_ns

    def ratio(self, name: str) -> Ratio | None:
        """Give the ratio that the record holds for a baseline."""
        row = self.rows.get(name)
        return None if row is None else row.ratio


@dataclass(frozen=True, slots=True)
class Group:
    """The kernels of one pipeline, or all of them."""

    name: str
    statuses: Mapping[Status, int]
    means: Mapping[str, MeanRatio]
    """The geometric mean of the ratio to each baseline, over the kernels that have one."""

    @property
    def kernels(self) -> int:
        """How many there are."""
        return sum(self.statuses.values())


@dataclass(frozen=True, slots=True)
class Losing:
    """A kernel whose whole interval lies below 1."""

    line: Line
    ratio: Ratio


@dataclass(frozen=True, slots=True)
class Cause:
    """Kernels that are not verified for the same reason."""

    status: Status
    message: str
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SuiteFigures:
    """Everything that the report of a suite shows."""

    lines: tuple[Line, ...]
    subject: str
    """The implementation that the others are compared with."""
    baselines: tuple[str, ...]
    """Those that any kernel has, in the order of the records."""
    groups: tuple[Group, ...]
    """All kernels first, then each pipeline."""
    causes: tuple[Cause, ...]

    def losing(self, baseline: str) -> tuple[Losing, ...]:
        """Give the kernels that surely lose to a baseline, the worst first."""
        found = [
            Losing(line, ratio)
            for line in self.lines
            if (ratio := line.ratio(baseline)) is not None and ratio.verdict == "slower"
        ]
        return tuple(sorted(found, key=lambda each: each.ratio.value))


def figures_of(run: SuiteRun) -> SuiteFigures:
    """Arrange what the run recorded."""
    lines = tuple(_line(kernel) for kernel in run.kernels)
    names = list(dict.fromkeys(name for line in lines for name in line.rows))
    subjects = Counter(line.ours.implementation for line in lines if line.ours is not None)
    subject = subjects.most_common(1)[0][0] if subjects else ""
    baselines = tuple(name for name in names if name != subject)
    pipelines = sorted({line.outcome.pipeline for line in lines})
    groups = [_group(OVER_ALL, lines, baselines)]
    for pipeline in pipelines if len(pipelines) > 1 else ():
        groups.append(
            _group(pipeline, [line for line in lines if line.outcome.pipeline == pipeline], baselines)
        )
    return SuiteFigures(lines, subject, baselines, tuple(groups), _causes(lines, run.header.root))


def _line(kernel: KernelResult) -> Line:
    rows = kernel.stored.rows if kernel.stored is not None else ()
    # a model that is wrong on a second draw has rows of that check too: the last word on a name counts
    found = {row.implementation: row for row in sorted(rows, key=lambda row: row.role is not Role.OURS)}
    return Line(kernel.outcome, found)


def _group(name: str, lines: Sequence[Line], baselines: Iterable[str]) -> Group:
    counted = Counter(line.outcome.status for line in lines)
    means = {}
    for baseline in baselines:
        ratios = [ratio for line in lines if (ratio := line.ratio(baseline)) is not None]
        if ratios:
            means[baseline] = mean_ratio(ratios)
    return Group(name, {status: counted[status] for status in Status if counted[status]}, means)


def _causes(lines: Iterable[Line], root: str) -> tuple[Cause, ...]:
    kernels: dict[tuple[Status, str], list[str]] = {}
    for line in lines:
        if line.outcome.status is not Status.VERIFIED:
            why = line.outcome.status, _cause(line.outcome.message, root)
            kernels.setdefault(why, []).append(line.kernel)
    found = [Cause(status, message, tuple(names)) for (status, message), names in kernels.items()]
    return tuple(sorted(found, key=lambda cause: (cause.status.rank, -len(cause.kernels), cause.message)))


def _cause(message: str, root: str) -> str:
    """Leave out where in a model's file it was, so that the same cause is one in every model."""
    return _AT.sub("", message.replace(f"{root}/", "") if root else message)


def _check(row: Row) -> str:
    if not row.check.comparable:
        return row.check.value if row.check is not Check.FAILED else "failed"
    rules = list(dict.fromkeys(_rule(output) for output in row.outputs))
    return ", ".join([*rules, *_draws(row)]) or row.check.value


def _rule(output: OutputCheck) -> str:
    # the rest of a normalised rule is its numbers for one output
    return output.tolerance.partition(":")[0]


def _draws(row: Row) -> Iterable[str]:
    draws = row.params.get("draws")
    if draws:
        yield str(draws)
