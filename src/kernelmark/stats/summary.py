"""Order statistics of one row's samples, and its drift.

It knows numbers only. What so few samples cannot tell is said in a note, never filled in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

from kernelmark.records import Note, NoteKind, Statistics

__all__ = ["drift", "nearest_rank", "summarise"]

_FOR_TAILS = 10
"""Below ten samples the tenth percentile is not among them: it would be the minimum by another name."""
_FOR_SPREAD = 2


def summarise(samples: Sequence[int | float]) -> Statistics:
    """Describe ``samples``, in nanoseconds.

    ``p10`` and ``p90`` are samples, not interpolations: sorted and counted from 0, the one at
    ``(n - 1) / 10`` rounded to the nearest rank, and the one as far from the other end.

    Raises:
        ValueError: there is no sample, or one is negative or not finite.
    """
    if not samples:
        raise ValueError("there is no sample to summarise")
    for position, value in enumerate(samples):
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"sample {position} is {value!r}; a time is finite and not negative")
    ordered = sorted(samples)
    count = len(ordered)
    tail = round((count - 1) / 10) if count >= _FOR_TAILS else None
    return Statistics(
        samples=count,
        median_ns=median(ordered),
        # The mean of equal values can leave their range by one rounding step.
        mean_ns=min(max(fmean(ordered), ordered[0]), ordered[-1]),
        min_ns=ordered[0],
        max_ns=ordered[-1],
        p10_ns=None if tail is None else ordered[tail],
        p90_ns=None if tail is None else ordered[count - 1 - tail],
        std_ns=stdev(ordered) if count >= _FOR_SPREAD else None,
        notes=_notes(ordered),
    )


def nearest_rank(samples: Sequence[int | float], share: float) -> int | float:
    """Give the sample below which ``share`` of them lie, to the nearest rank.

    Raises:
        IndexError: there is no sample.
    """
    return sorted(samples)[round(share * (len(samples) - 1))]


def drift(first: Sequence[int | float], second: Sequence[int | float]) -> float | None:
    """Return the median of ``second`` over the median of ``first``, less 1.

    ``None`` where either is empty or the first median is 0: there is nothing to divide then.
    """
    if not first or not second:
        return None
    start = median(first)
    return median(second) / start - 1 if start > 0 else None


def _notes(ordered: Sequence[int | float]) -> tuple[Note, ...]:
    count = len(ordered)
    notes = []
    if count < _FOR_SPREAD:
        notes.append(Note.of(NoteKind.NO_DEVIATION, samples=count, needed=_FOR_SPREAD))
    if count < _FOR_TAILS:
        notes.append(Note.of(NoteKind.NO_TAILS, samples=count, needed=_FOR_TAILS))
    if count >= _FOR_SPREAD and ordered[0] == ordered[-1]:
        notes.append(Note.of(NoteKind.EQUAL_SAMPLES, samples=count))
    return tuple(notes)
