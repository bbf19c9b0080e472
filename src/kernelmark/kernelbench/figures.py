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
from kernelmark.records import Ratio, Role, Row
from kernelmark.stats import MeanRatio, mean_ratio

__all__ = ["Cause", "Group", "Line", "SuiteFigures", "figures_of"]

_AT = re.compile(r"^\S+\.py:\d+: ")


@dataclass(frozen=True, slots=True)
class Line:
    """One kernel: what became of it, how it was checked, and what the engine recorded of its times."""

    kernel: str
    """Its name without its ending."""
    outcome: Outcome
    rows: Mapping[str, Row]
    """Its implementations by name, the one that the others are compared with first."""
    ours: Row | None
    """That one."""

    @property
    def check(self) -> str:
        """Say what was checked, and by which rule."""
        row = self.ours
        if row is None or not row.check.comparable:
            return "" if row is None else row.check.value
        # the rest of a normalised rule is its numbers for one output
        rules = dict.fromkeys(output.tolerance.partition(":")[0] for output in row.outputs)
        draws = row.params.get("draws")
        return ", ".join([*rules, *([str(draws)] if draws else [])]) or row.check.value

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
    """The kernels of one pipeline, or ``all``."""

    name: str
    kernels: int
    statuses: Mapping[Status, int]
    means: Mapping[str, MeanRatio]
    """The geometric mean of the ratio to each baseline, over the kernels that have one."""


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

    @property
    def names(self) -> tuple[str, ...]:
        """All implementations, the subject first; none where no kernel came so far."""
        return (self.subject, *self.baselines) if self.subject else ()

    def losing(self, baseline: str) -> tuple[tuple[Line, Ratio], ...]:
        """Give the kernels whose whole interval lies below 1, with their ratios, the worst first."""
        found = [(line, ratio) for line in self.lines if (ratio := line.ratio(baseline)) is not None]
        losing = [each for each in found if each[1].verdict == "slower"]
        return tuple(sorted(losing, key=lambda each: each[1].value))


def figures_of(run: SuiteRun) -> SuiteFigures:
    """Arrange what the run recorded."""
    lines = tuple(map(_line, run.kernels))
    subjects = Counter(line.ours.implementation for line in lines if line.ours is not None)
    subject = subjects.most_common(1)[0][0] if subjects else ""
    names = dict.fromkeys(name for line in lines for name in line.rows)
    baselines = tuple(name for name in names if name != subject)
    pipelines = sorted({line.outcome.pipeline for line in lines})
    groups = [_group("all", lines, baselines)]
    for pipeline in pipelines if len(pipelines) > 1 else ():
        of_it = [line for line in lines if line.outcome.pipeline == pipeline]
        groups.append(_group(pipeline, of_it, baselines))
    return SuiteFigures(lines, subject, baselines, tuple(groups), _causes(lines, run.header.root))


def _line(kernel: KernelResult) -> Line:
    rows = kernel.stored.rows if kernel.stored is not None else ()
    # a model that is wrong on a second draw has rows of that check too: the last word on a name counts
    found = {row.implementation: row for row in sorted(rows, key=lambda row: row.role is not Role.OURS)}
    ours = next((row for row in found.values() if row.role is Role.OURS), None)
    return Line(kernel.name, kernel.outcome, found, ours)


def _group(name: str, lines: Sequence[Line], baselines: Iterable[str]) -> Group:
    counted = Counter(line.outcome.status for line in lines)
    ratios = {
        each: [ratio for line in lines if (ratio := line.ratio(each)) is not None] for each in baselines
    }
    means = {each: mean_ratio(found) for each, found in ratios.items() if found}
    return Group(name, len(lines), {status: counted[status] for status in Status if counted[status]}, means)


def _causes(lines: Iterable[Line], root: str) -> tuple[Cause, ...]:
    kernels: dict[tuple[Status, str], list[str]] = {}
    for line in lines:
        outcome = line.outcome
        if outcome.status is not Status.VERIFIED:
            # without where in a model's file it was, the same cause is one in every model
            cause = _AT.sub("", outcome.message.replace(f"{root}/", "") if root else outcome.message)
            kernels.setdefault((outcome.status, cause), []).append(line.kernel)
    found = [Cause(status, message, tuple(names)) for (status, message), names in kernels.items()]
    return tuple(sorted(found, key=lambda cause: (cause.status.rank, -len(cause.kernels), cause.message)))
