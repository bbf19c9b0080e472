"""Makes the rows that count from those that a worker recorded: numbers from raw samples, ratios from numbers.

Pure: it gets rows and gives rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from kernelmark.errors import TimingError
from kernelmark.kernelfile.handover import SecondCheck
from kernelmark.kernelfile.languages import LANGUAGES
from kernelmark.kernelfile.request import SOLUTION, Request
from kernelmark.records import Check, Note, OutputCheck, Ratio, Role, Row, Timing
from kernelmark.stats import drift, paired_ratio, summarise
from kernelmark.timing import block_samples
from kernelmark.units import NS_PER_S, format_time

__all__ = ["judged_rows", "missing_rows", "twice_checked", "untimed_rows"]


def judged_rows(rows: Sequence[Row], notes: Mapping[str, Sequence[str]], *, wall_s: float) -> tuple[Row, ...]:
    """Compute statistics and ratios again from the samples in ``rows``, and add ``notes`` by row.

    Args:
        rows: As the worker recorded them, ours first.
        notes: What the worker found besides.
        wall_s: How long the worker took by the parent's clock.

    Raises:
        TimingError: the samples add up to more time than there was.
    """
    timings = {row.implementation: _recomputed(row.timing) for row in rows if row.timing is not None}
    _require_within(timings, wall_s)
    ours = rows[0] if rows else None
    judged = []
    for row in rows:
        timing = timings.get(row.implementation)
        ratio = _ratio(ours, timings.get(ours.implementation) if ours else None, row, timing)
        added = tuple(map(Note.free, notes.get(row.implementation, ())))
        judged.append(
            Row.model_validate({**dict(row), "timing": timing, "ratio": ratio, "notes": (*row.notes, *added)})
        )
    return tuple(judged)


def twice_checked(rows: Sequence[Row], second: SecondCheck) -> tuple[Row, ...]:
    """Put what the second check found on the row of the solution, which comes first.

    A wrong answer fails it. One that proves nothing leaves it unverified, and so without a ratio.
    """
    ours = rows[0]
    if second.broken:
        return untimed_rows(rows, f"its answers could not be checked again: {second.broken.splitlines()[0]}")
    if second.wrong:
        outputs = tuple(OutputCheck.model_validate(each) for each in second.outputs)
        found = {"check": Check.FAILED, "note": _WRONG_OUTSIDE, "outputs": outputs, "timing": None}
    elif second.undone:
        found = {"notes": (*ours.notes, Note.free(f"checked in its own process only: {second.undone}"))}
    elif second.vacuous:
        found = {"check": Check.UNVERIFIED, "note": second.vacuous}
    else:
        found = {"notes": (*ours.notes, Note.free(_RIGHT_OUTSIDE))}
    return (Row.model_validate({**dict(ours), **found}), *rows[1:])


_WRONG_OUTSIDE = (
    "right by its own process, and wrong where its answers to other values were checked again, outside it"
)
_RIGHT_OUTSIDE = (
    "its answers to values drawn after timing were right too, checked in a process that never loaded it"
)


def untimed_rows(rows: Sequence[Row], why: str) -> tuple[Row, ...]:
    """Take the times and ratios from ``rows``, and say why."""
    return tuple(
        row.model_copy(
            update={"timing": None, "ratio": None, "notes": (*row.notes, Note.free(f"not timed: {why}"))}
        )
        for row in rows
    )


def missing_rows(
    request: Request, rows: Sequence[Row], message: str, evidence: str, *, crashed: bool
) -> tuple[Row, ...]:
    """Account for what was asked for where the worker did not: the solution failed, the others are untimed."""
    recorded = {row.implementation: row for row in rows}
    ours = recorded.get(SOLUTION)
    why = message.splitlines()[0]
    made = [
        Row(
            case=request.case_id,
            implementation=SOLUTION,
            role=Role.OURS,
            backend=LANGUAGES[request.language].backend,
            check=Check.FAILED,
            note=Note.free(why),
            notes=ours.notes if ours else (),
            params=dict(request.values),
            outputs=ours.outputs if ours else (),
            traceback=evidence or None,
            seed=request.seed,
        )
    ]
    for name in request.baselines:
        row = recorded.get(name.value)
        untimed = f"not timed: the solution {'crashed' if crashed else 'failed'}"
        if row is not None and not row.check.timeable:
            made.append(row)
        else:
            made.append(
                Row(
                    case=request.case_id,
                    implementation=name.value,
                    role=Role.BASELINE,
                    check=Check.UNVERIFIED,
                    note=Note.free(untimed),
                    params=dict(request.values),
                    seed=request.seed,
                )
            )
    return tuple(made)


def _recomputed(timing: Timing) -> Timing:
    busy = list(chain.from_iterable(each.device_busy_ns for each in timing.passes))
    latency = list(chain.from_iterable(each.latency_ns for each in timing.passes))
    middle = len(timing.passes) // 2
    first = list(chain.from_iterable(each.device_busy_ns for each in timing.passes[:middle]))
    return timing.model_copy(
        update={
            "device_busy": summarise(busy),
            "latency": summarise(latency),
            "drift": drift(first, busy[len(first) :]),
        }
    )


def _require_within(timings: Mapping[str, Timing], wall_s: float) -> None:
    total = sum(sum(each.latency_ns) for timing in timings.values() for each in timing.passes)
    if total > wall_s * NS_PER_S:
        raise TimingError(
            f"the samples add up to {format_time(total)}, and the worker took {format_time(wall_s * NS_PER_S)}"
            " in all by the parent's clock; a clock in the worker was tampered with, so no time is given"
        )


def _ratio(ours: Row | None, ours_timing: Timing | None, row: Row, timing: Timing | None) -> Ratio | None:
    if ours is None or row.role is Role.OURS or ours_timing is None or timing is None:
        return None
    if not (ours.check.comparable and row.check.comparable):
        return None
    return paired_ratio(block_samples(ours_timing), block_samples(timing))
