"""Makes the rows that count from those that a worker recorded: numbers from raw samples, ratios from numbers.

Pure: it gets rows, and gives rows and their outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from kernelmark.errors import CrashedError, KernelmarkError, TimingError
from kernelmark.kernelfile.request import LANGUAGES, SOLUTION, Request, SecondCheck
from kernelmark.records import Cause, Check, Fate, Note, NoteKind, Ratio, Role, Row, Stage, Timing
from kernelmark.stats import drift, paired_ratio, summarise
from kernelmark.timing import block_samples
from kernelmark.units import NS_PER_S, format_time

__all__ = ["Ending", "busy_samples", "judged_rows", "missing_rows", "twice_checked", "untimed_rows"]


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
        match fate.cause:
            case None if fate.check is None or not fate.check.comparable:
                return cls.UNVERIFIED
            case None:
                return cls.MEASURED if fate.stage is Stage.TIME else cls.VERIFIED
            case Cause.RAISED | Cause.MEMORY | Cause.LIMIT | Cause.DIED:
                return cls.CRASHED
            case Cause.DOUBT | Cause.UNAVAILABLE:
                return cls.UNTIMED
        return cls.WRONG


def judged_rows(
    rows: Sequence[Row], notes: Mapping[str, Sequence[Note | str]], *, wall_s: float
) -> tuple[Row, ...]:
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
    ours = rows[0] if rows else None
    return tuple(
        _with(
            row,
            timing=timings.get(row.implementation),
            ratio=_ratio(ours, row, timings),
            notes=(*row.notes, *notes.get(row.implementation, ())),
        )
        for row in rows
    )


def _recomputed(timing: Timing) -> Timing:
    busy, middle = busy_samples(timing), len(timing.passes) // 2
    first = sum(len(each.device_busy_ns) for each in timing.passes[:middle])
    latency = [ns for each in timing.passes for ns in each.latency_ns]
    again = {
        "device_busy": summarise(busy),
        "latency": summarise(latency),
        "drift": drift(busy[:first], busy[first:]),
    }
    return timing.model_copy(update=again)


def busy_samples(timing: Timing) -> list[float]:
    """Give all samples of device busy time, in nanoseconds, in the order in which they were taken."""
    return [ns for each in timing.passes for ns in each.device_busy_ns]


def _ratio(ours: Row | None, row: Row, timings: Mapping[str, Timing]) -> Ratio | None:
    if ours is None or row.role is Role.OURS or not (ours.check.comparable and row.check.comparable):
        return None
    mine, theirs = timings.get(ours.implementation), timings.get(row.implementation)
    return (
        None if mine is None or theirs is None else paired_ratio(block_samples(mine), block_samples(theirs))
    )


def twice_checked(rows: Sequence[Row], second: SecondCheck) -> tuple[Row, ...]:
    """Put what the second check found on the row of the solution, which comes first.

    A wrong answer fails it. One that proves nothing leaves it unverified, and so without a ratio.
    """
    ours, changes = rows[0], dict[str, Any]()
    if second.broken:
        return untimed_rows(rows, f"its answers could not be checked again: {second.broken.splitlines()[0]}")
    if second.wrong:
        note = Note.of(NoteKind.WRONG_OUTSIDE)
        changes = {"check": Check.FAILED, "note": note, "outputs": second.outputs, "timing": None}
    elif second.undone:
        changes = {"notes": (*ours.notes, Note.of(NoteKind.CHECKED_INSIDE, why=second.undone))}
    elif second.vacuous:
        changes = {"check": Check.UNVERIFIED, "note": Note.of(NoteKind.VACUOUS, why=second.vacuous)}
    else:
        changes = {"notes": (*ours.notes, Note.of(NoteKind.RIGHT_OUTSIDE))}
    return (_with(ours, **changes), *rows[1:])


def untimed_rows(rows: Sequence[Row], why: str) -> tuple[Row, ...]:
    """Take the times and ratios from ``rows``, and say why."""
    note = Note.of(NoteKind.NOT_TIMED, why=why)
    return tuple(_with(row, timing=None, ratio=None, notes=(*row.notes, note)) for row in rows)


def missing_rows(
    request: Request, rows: Sequence[Row], error: KernelmarkError, evidence: str
) -> tuple[Row, ...]:
    """Account for what was asked for where the worker did not: the solution failed, the others are untimed."""
    recorded = {row.implementation: row for row in rows}
    ours = recorded.get(SOLUTION)
    common = {"case": request.case_id, "params": dict(request.values), "seed": request.seed}
    failed = Row(
        **common,
        implementation=SOLUTION,
        role=Role.OURS,
        backend=LANGUAGES[request.language].backend,
        check=Check.FAILED,
        note=Note.of(NoteKind.ERROR, type=type(error).__name__, text=str(error).splitlines()[0]),
        notes=ours.notes if ours else (),
        outputs=ours.outputs if ours else (),
        traceback=evidence or None,
    )
    why = f"the solution {'crashed' if isinstance(error, CrashedError) else 'failed'}"
    untimed = {
        name.value: Row(
            **common,
            implementation=name.value,
            role=Role.BASELINE,
            check=Check.UNVERIFIED,
            note=Note.of(NoteKind.NOT_TIMED, why=why),
        )
        for name in request.baselines
    }
    kept = {name: row for name, row in recorded.items() if name in untimed and not row.check.timeable}
    return (failed, *(untimed | kept).values())


def _with(row: Row, **changes: Any) -> Row:
    return Row.model_validate({**dict(row), **changes})
