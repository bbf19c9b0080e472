"""The sentences that belong to one row: why its check is what it is, and what to know about its numbers.

The only place where a note becomes text: a table by kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from kernelmark.records import Check, Note, NoteKind, OutputCheck, Role, Row, Timing
from kernelmark.report.plain import one_line
from kernelmark.text import counted
from kernelmark.units import format_time, significant

__all__ = ["DRIFT_LIMIT", "TEXTS", "error_text", "mixed_caches", "note_text", "row_notes", "uneven_blocks"]

DRIFT_LIMIT = 0.05
"""A change between the halves of the passes beyond which the median describes neither half."""

TEXTS: Mapping[NoteKind, Callable[..., str]] = {
    NoteKind.TEXT: lambda text: text,
    NoteKind.ERROR: lambda type, text: text or type,  # noqa: A006 - the fact's name
    NoteKind.FAILED: lambda status, why: why or status,
    NoteKind.NOT_TIMED: lambda why: f"not timed: {why}",
    NoteKind.UNAVAILABLE: lambda reason: reason,
    NoteKind.FAILED_AT: lambda stage, text: f"{stage}: {text}",
    NoteKind.SAME_CODE: lambda candidate: f"the same code as {candidate}",
    NoteKind.CANDIDATE: lambda fate, rung: fate if rung is None else f"rung {rung + 1}: {fate}",
    NoteKind.MERGED: lambda runs: f"put together from the runs {runs}",
    NoteKind.RESUMED: lambda at, revision: (
        f"gone on with at {at}{f', at revision {revision[:12]}' if revision else ''}: rows kept from before are of the"
        " revision above"
    ),
    # kernel files
    NoteKind.NO_OPENMP: lambda: (
        "#pragma omp had no effect: it was built without OpenMP; add --compile-flags=-fopenmp, with nvcc"
        " --compile-flags=-Xcompiler=-fopenmp"
    ),
    NoteKind.PART: lambda output, elements, buffer: (
        f"{output}: the first {elements} of {buffer} elements are the reference's answer"
    ),
    NoteKind.SAME_DRAW: lambda: (
        "setup() gives the same values for every seed, so they were permuted before the check"
    ),
    NoteKind.INTERPRETED: lambda: (
        "checked in Triton's interpreter on the CPU; the interpreter's time says nothing, so none is given"
    ),
    NoteKind.READS_BESIDE: lambda buffers: (
        f"its NaN come from beside {buffers}: it reads outside that buffer, and the guards there hold NaN;"
        " compare its loop bounds with the sizes of the buffers"
    ),
    NoteKind.SMALL_MISS: lambda times: (
        f"the errors are less than {times} times what is allowed, as rounding in long sums can be:"
        ' if these are sums, say of how many terms in the reference file, as in reduction = "N"'
    ),
    NoteKind.RECOMPILED: lambda graphs: (
        f"torch compiled {graphs} more graphs after its first two calls, so its times hold compilations"
    ),
    NoteKind.CHECKED_INSIDE: lambda why: f"checked in its own process only: {why}",
    NoteKind.RIGHT_OUTSIDE: lambda: (
        "its answers to values drawn after timing were right too, checked in a process that never loaded it"
    ),
    NoteKind.WRONG_OUTSIDE: lambda: (
        "right by its own process, and wrong where its answers to other values were checked again, outside it"
    ),
    NoteKind.VACUOUS: lambda why: why,
    # samples and their statistics
    NoteKind.NO_DEVIATION: lambda samples, needed: (
        f"{counted(samples, 'sample')}: no standard deviation (needs {needed})"
    ),
    NoteKind.NO_TAILS: lambda samples, needed: (
        f"{counted(samples, 'sample')}: no p10 and p90 (need {needed})"
    ),
    NoteKind.EQUAL_SAMPLES: lambda samples: (
        f"all {samples} samples are equal: the clock is too coarse to show their spread"
    ),
}
"""How each kind of note reads; the parameters are the facts that ``records.NOTE_VALUES`` has for it."""


def note_text(note: Note | None) -> str:
    """Write a note for people; nothing for none."""
    return "" if note is None else TEXTS[note.kind](**note.values)


def row_notes(row: Row) -> tuple[str, ...]:
    """Give the notes of a row, each in one line and none twice, the reason for its check first."""
    notes = [*_reason(row), *map(note_text, row.notes)]
    if row.timing is not None:
        notes += _timing_notes(row.timing)
    if row.ratio is not None and row.ratio.low is None:
        notes.append(f"the ratio is of {row.ratio.blocks} block, so it has no interval")
    if row.roofline is not None:
        notes += [note_text(row.roofline.anomaly), note_text(row.roofline.note)]
    return tuple(dict.fromkeys(filter(None, map(one_line, notes))))


def mixed_caches(rows: Iterable[Row]) -> str:
    """Say that cold and warm times stand beside each other in ``rows``; nothing where they do not."""
    states = Counter(row.timing.cache.value for row in rows if row.timing)
    if len(states) < 2:
        return ""
    told = " and ".join(f"{count} with {cache} caches" for cache, count in sorted(states.items()))
    return f"of these times {told} were read: do not compare a cold one with a warm one"


def uneven_blocks(rows: Iterable[Row]) -> Iterator[str]:
    """Explain each ratio that the medians of its rows contradict: it compares within blocks, medians pool them."""
    rows = tuple(rows)
    ours = {(row.op, row.case): row.timing for row in rows if row.role is Role.OURS and row.timing}
    for row in rows:
        mine, ratio = ours.get((row.op, row.case)), row.ratio
        if mine is None or row.timing is None or ratio is None or ratio.low is None or ratio.high is None:
            continue
        theirs = row.timing.device_busy.median_ns
        low, high = (end * mine.device_busy.median_ns for end in (ratio.low, ratio.high))
        if not low <= theirs <= high:
            yield (
                f"{row.case} / {row.implementation}: the ratio is {ratio}, and the medians are"
                f" {format_time(theirs)} and {format_time(mine.device_busy.median_ns)}: the blocks were uneven;"
                " the ratio compares within each block, so trust it before the medians"
            )


def error_text(output: OutputCheck) -> str:
    """Say how far one output is from the reference."""
    if output.max_abs_error is None:
        return f"{output.output}: {output.message or 'not compared'}"
    text = f"{output.output}: largest error {significant(output.max_abs_error, 3)}"
    if output.error_over_tolerance is not None:
        worst = significant(output.error_over_tolerance, 3)
        text += f"; at worst {worst} times the tolerance ({output.tolerance})"
    if output.mismatched:
        # the worst by its tolerance, which need not be where the error is largest
        index = ", ".join(map(str, output.worst_index or ()))
        text += f"; {output.mismatched} of {output.total} elements off"
        text += f", the worst at [{index}]: expected {output.expected}, got {output.got}"
    return text


def _reason(row: Row) -> Iterator[str]:
    reason = note_text(row.note)
    if row.check is Check.VERIFIED:
        yield reason
        return
    wrong = [output for output in row.outputs if not output.passed] if row.check is Check.FAILED else []
    # With the outputs at hand, the message's own list of them would say everything twice.
    reason = reason.splitlines()[0] if wrong and reason else reason
    yield f"{row.check}: {reason}" if reason else ""
    yield from map(error_text, wrong)


def _timing_notes(timing: Timing) -> Iterator[str]:
    if timing.n_kernels_varied:
        yield "the number of kernels varied from call to call; the largest is shown"
    if timing.uncounted_copy_ns:
        yield f"copies of {format_time(timing.uncounted_copy_ns)} a call are not in device busy"
    if timing.drift is not None and abs(timing.drift) > DRIFT_LIMIT:
        change = f"{100 * abs(timing.drift):.1f} % {'longer' if timing.drift > 0 else 'less long'}"
        yield f"the second half of the passes took {change} than the first"
    if timing.retries:
        yield f"{timing.retries} {'pass' if timing.retries == 1 else 'passes'} had to be read again"
    yield from map(note_text, (*timing.notes, *timing.device_busy.notes))
