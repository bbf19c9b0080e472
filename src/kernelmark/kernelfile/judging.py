"""Makes the rows that count from those that a worker recorded: numbers from raw samples, ratios from numbers.

Pure: it gets rows, and gives rows, their outcome, and the figures that the reports show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any

from kernelmark.errors import CrashedError, KernelmarkError, TimingError
from kernelmark.kernelfile.handover import SecondCheck
from kernelmark.kernelfile.languages import LANGUAGES
from kernelmark.kernelfile.request import SOLUTION, Request
from kernelmark.records import Cause, Check, Fate, Ratio, Role, Row, Stage, Timing
from kernelmark.stats import drift, nearest_rank, paired_ratio, summarise
from kernelmark.timing import block_samples
from kernelmark.units import NS_PER_MS, NS_PER_S, format_time

__all__ = [
    "Ending",
    "judged_rows",
    "missing_rows",
    "speedups",
    "twice_checked",
    "untimed_rows",
    "variants",
]


class Ending(StrEnum):
    """What became of a comparison."""

    MEASURED = "measured"
    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    WRONG = "wrong"
    CRASHED = "crashed"
    UNTIMED = "untimed"

    @property
    def passed(self) -> bool:
        """Whether all that was asked for was done, and nothing was found to be wrong."""
        return self in (Ending.MEASURED, Ending.VERIFIED, Ending.UNVERIFIED)

    @classmethod
    def of(cls, fate: Fate) -> Ending:
        """Give the word for ``fate``."""
        if fate.cause is not None:
            return _BY_CAUSE.get(fate.cause, cls.WRONG)
        if fate.check is None or not fate.check.comparable:
            return cls.UNVERIFIED
        return cls.MEASURED if fate.stage is Stage.TIME else cls.VERIFIED


_BY_CAUSE = {
    **dict.fromkeys((Cause.RAISED, Cause.MEMORY, Cause.LIMIT, Cause.DIED), Ending.CRASHED),
    **dict.fromkeys((Cause.DOUBT, Cause.UNAVAILABLE), Ending.UNTIMED),
}
"""What ended a comparison; everything else was found to be wrong."""


# --- rows ----------------------------------------------------------------------------------------------


def judged_rows(rows: Sequence[Row], notes: Mapping[str, Sequence[str]], *, wall_s: float) -> tuple[Row, ...]:
    """Compute statistics and ratios again from the samples in ``rows``, and add ``notes`` by row.

    Args:
        rows: As the worker recorded them, ours first.
        notes: What the worker found besides.
        wall_s: How long the worker took by the parent's clock, in seconds.

    Raises:
        TimingError: the samples add up to more time than there was.
    """
    timings = {row.implementation: _recomputed(row.timing) for row in rows if row.timing is not None}
    total_ns = sum(sum(each.latency_ns) for timing in timings.values() for each in timing.passes)
    if total_ns > wall_s * NS_PER_S:
        raise TimingError(
            f"the samples add up to {format_time(total_ns)}, and the worker took {format_time(wall_s * NS_PER_S)}"
            " in all by the parent's clock; a clock in the worker was tampered with, so no time is given"
        )
    return tuple(
        _with(
            row,
            timing=timings.get(row.implementation),
            ratio=_ratio(rows[0], timings.get(rows[0].implementation), row, timings.get(row.implementation)),
            notes=(*row.notes, *notes.get(row.implementation, ())),
        )
        for row in rows
    )


def twice_checked(rows: Sequence[Row], second: SecondCheck) -> tuple[Row, ...]:
    """Put what the second check found on the row of the solution, which comes first.

    A wrong answer fails it. One that proves nothing leaves it unverified, and so without a ratio.
    """
    ours = rows[0]
    if second.broken:
        return untimed_rows(rows, f"its answers could not be checked again: {second.broken.splitlines()[0]}")
    if second.wrong:
        ours = _with(ours, check=Check.FAILED, note=_WRONG_OUTSIDE, outputs=second.outputs, timing=None)
    elif second.undone:
        ours = _with(ours, notes=(*ours.notes, f"checked in its own process only: {second.undone}"))
    elif second.vacuous:
        ours = _with(ours, check=Check.UNVERIFIED, note=second.vacuous)
    else:
        ours = _with(ours, notes=(*ours.notes, _RIGHT_OUTSIDE))
    return (ours, *rows[1:])


_WRONG_OUTSIDE = (
    "right by its own process, and wrong where its answers to other values were checked again, outside it"
)
_RIGHT_OUTSIDE = (
    "its answers to values drawn after timing were right too, checked in a process that never loaded it"
)


def untimed_rows(rows: Sequence[Row], why: str) -> tuple[Row, ...]:
    """Take the times and ratios from ``rows``, and say why."""
    return tuple(_with(row, timing=None, ratio=None, notes=(*row.notes, f"not timed: {why}")) for row in rows)


def missing_rows(
    request: Request, rows: Sequence[Row], error: KernelmarkError, evidence: str
) -> tuple[Row, ...]:
    """Account for what was asked for where the worker did not: the solution failed, the others are untimed."""
    recorded = {row.implementation: row for row in rows}
    ours = recorded.get(SOLUTION)
    common = {"case": request.case_id, "params": dict(request.values), "seed": request.seed}
    made = [
        Row.model_validate(
            {
                **common,
                "implementation": SOLUTION,
                "role": Role.OURS,
                "backend": LANGUAGES[request.language].backend,
                "check": Check.FAILED,
                "note": str(error).splitlines()[0],
                "notes": ours.notes if ours else (),
                "outputs": ours.outputs if ours else (),
                "traceback": evidence or None,
            }
        )
    ]
    why = "crashed" if isinstance(error, CrashedError) else "failed"
    for name in request.baselines:
        row = recorded.get(name.value)
        if row is None or row.check.timeable:
            row = Row.model_validate(
                {
                    **common,
                    "implementation": name.value,
                    "role": Role.BASELINE,
                    "check": Check.UNVERIFIED,
                    "note": f"not timed: the solution {why}",
                }
            )
        made.append(row)
    return tuple(made)


def _with(row: Row, **changes: Any) -> Row:
    return Row.model_validate({**dict(row), **changes})


def _recomputed(timing: Timing) -> Timing:
    busy = _busy(timing)
    middle = len(timing.passes) // 2
    first = list(chain.from_iterable(each.device_busy_ns for each in timing.passes[:middle]))
    return timing.model_copy(
        update={
            "device_busy": summarise(busy),
            "latency": summarise(list(chain.from_iterable(each.latency_ns for each in timing.passes))),
            "drift": drift(first, busy[len(first) :]),
        }
    )


def _busy(timing: Timing) -> list[float]:
    return list(chain.from_iterable(each.device_busy_ns for each in timing.passes))


def _ratio(ours: Row, ours_timing: Timing | None, row: Row, timing: Timing | None) -> Ratio | None:
    if row.role is Role.OURS or ours_timing is None or timing is None:
        return None
    if not (ours.check.comparable and row.check.comparable):
        return None
    return paired_ratio(block_samples(ours_timing), block_samples(timing))


# --- figures -------------------------------------------------------------------------------------------


def variants(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Give the times of each row by its name, in milliseconds; nothing where it has none."""
    return {row.implementation: {} if row.timing is None else _times(row.timing) for row in rows}


def speedups(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Give how many times as fast as each baseline the solution is, by mean, by median and paired."""
    ours = rows[0].timing
    found = []
    for row in rows[1:]:
        if row.ratio is None or row.timing is None or ours is None:
            continue
        mine, theirs, ratio = ours.device_busy, row.timing.device_busy, row.ratio
        found.append(
            {
                "baseline": row.implementation,
                "by_mean": theirs.mean_ns / mine.mean_ns,
                "by_median": theirs.median_ns / mine.median_ns,
                "paired": ratio.value,
                "low": ratio.low,
                "high": ratio.high,
                "confidence": ratio.confidence,
                "verdict": ratio.verdict,
            }
        )
    return found


def _times(timing: Timing) -> dict[str, Any]:
    busy, samples = timing.device_busy, _busy(timing)
    in_ns = {
        "mean_ms": busy.mean_ns,
        "median_ms": busy.median_ns,
        "p20_ms": nearest_rank(samples, 0.2),
        "p80_ms": nearest_rank(samples, 0.8),
        "min_ms": busy.min_ns,
        "max_ms": busy.max_ns,
        "std_ms": busy.std_ns,
    }
    return {
        **{key: None if ns is None else ns / NS_PER_MS for key, ns in in_ns.items()},
        "samples": busy.samples,
    }
