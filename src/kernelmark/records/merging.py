"""Puts the rows of several runs into one: the shards of a run, or a run and what was measured again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from kernelmark.errors import RecordError, UsageError
from kernelmark.files import replace
from kernelmark.records.codec import RunWriter, StoredRun
from kernelmark.records.fate import Check, RunOutcome
from kernelmark.records.metadata import refuse_unlike
from kernelmark.records.model import Row, RunEnd
from kernelmark.records.notes import Note, NoteKind

__all__ = ["finished_rows", "merge_runs", "rewrite"]

_Case = tuple[str | None, str]


def merge_runs(
    runs: Sequence[StoredRun], out: Path, *, name: str, command: tuple[str, ...], ended: str
) -> Path:
    """Write one run with the rows of all ``runs``, case by case, into ``out``; gives its file.

    A case that failed in one run and is in a later one as well counts as that has it.

    Args:
        runs: In the order in which they were made.
        out: A folder without a run.
        name: What the new run is called.
        command: What made it, for the record.
        ended: When.

    Raises:
        UsageError: there are fewer than two, or two of them hold the same case, which had not failed.
        RecordError: they were not made alike, so that their times mean different things; ``out`` holds a run already,
            or cannot be written.
    """
    if len(runs) < 2:
        raise UsageError("give two runs or more; one is whole by itself")
    first = runs[0].header
    held: dict[_Case, tuple[StoredRun, list[Row]]] = {}
    for run in runs:
        refuse_unlike(
            first, run.header, advice="merge runs of one kind of machine, made with the same options"
        )
        for case, rows in _by_case(run.rows).items():
            earlier = held.get(case)
            if earlier and not any(row.check is Check.FAILED for row in earlier[1]):
                raise UsageError(
                    f"{earlier[0].path} and {run.path} both hold {case[1]}; leave one of them out"
                )
            held[case] = run, rows
    names = ", ".join(run.header.run for run in runs)
    header = first.model_copy(
        update={
            "run": name,
            "command": command,
            "notes": (*first.notes, Note.of(NoteKind.MERGED, runs=names)),
        }
    )
    writer = RunWriter.create(out, header)
    for _, rows in held.values():
        for row in rows:
            writer.row(row)
    outcomes = [run.end.outcome if run.end else RunOutcome.INTERRUPTED for run in runs]
    failed = any(row.check is Check.FAILED for _, rows in held.values() for row in rows)
    outcome = RunOutcome.INTERRUPTED if RunOutcome.INTERRUPTED in outcomes else RunOutcome.COMPLETED
    writer.end(RunEnd(ended=ended, rows=writer.rows, outcome=RunOutcome.FAILED if failed else outcome))
    return writer.path


def finished_rows(run: StoredRun) -> tuple[Row, ...]:
    """Give the rows of the cases that need not be measured again: none failed, and none may have been cut short."""
    cases = _by_case(run.rows)
    last = (run.rows[-1].op, run.rows[-1].case) if run.rows and run.end is None else None
    return tuple(
        row
        for case, rows in cases.items()
        if case != last and not any(row.check is Check.FAILED for row in rows)
        for row in rows
    )


def rewrite(run: StoredRun, rows: Iterable[Row], note: Note) -> StoredRun:
    """Leave of a stored run its header, with one more note, and ``rows``, without an end mark; or what was there.

    Raises:
        RecordError: it cannot be written.
    """
    kept = tuple(rows)
    header = run.header.model_copy(update={"notes": (*run.header.notes, note)})
    records = [header, *kept]
    try:
        replace(run.path, "".join(each.model_dump_json(exclude_none=True) + "\n" for each in records))
    except OSError as error:
        raise RecordError(f"cannot write {run.path}: {error.strerror}; name another folder") from error
    return StoredRun(run.path, header, kept)


def _by_case(rows: Iterable[Row]) -> dict[_Case, list[Row]]:
    cases: dict[_Case, list[Row]] = {}
    for row in rows:
        cases.setdefault((row.op, row.case), []).append(row)
    return cases
