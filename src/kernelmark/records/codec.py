"""Reads and writes ``records.jsonl``: one record a line, on disk before the next one is made.

Format history
    1: header, rows, end.
    2: a note is a kind and its facts, where it was a sentence.

A run of an older format is read as if it had been written now: each step in :data:`_UPGRADES` turns the records of
one format into those of the next. A run of each former format stands in ``tests/data/run_vN``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from kernelmark.errors import RecordError
from kernelmark.records.model import Record, Row, RunEnd, RunHeader

__all__ = ["FORMAT_VERSION", "RECORDS_FILE", "RunWriter", "StoredRun", "read_run", "refuse_other_caches"]

FORMAT_VERSION = 2
RECORDS_FILE = "records.jsonl"

_KINDS: dict[str, type[Record]] = {"header": RunHeader, "row": Row, "end": RunEnd}


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as read back."""

    path: Path
    header: RunHeader
    rows: tuple[Row, ...]
    end: RunEnd | None = None
    truncated: bool = False
    """Whether the file ends inside a line, as after a power cut or on a full disk; every whole line is here."""


@contextmanager
def _told(what: str, then: str = "choose another output folder") -> Iterator[None]:
    """Say of an error of the system what cannot be done."""
    try:
        yield
    except OSError as error:
        raise RecordError(f"cannot {what}: {error.strerror}; {then}") from error


@dataclass(slots=True)
class RunWriter:
    """Appends records to ``folder/records.jsonl`` and syncs each one.

    Build one with :meth:`create`, or for a run that was cut short with :meth:`reopen`. It never rewrites what it wrote.
    """

    path: Path
    header: RunHeader
    _file: IO[bytes] = field(repr=False)
    rows: int = 0

    @classmethod
    def create(cls, folder: Path, header: RunHeader) -> RunWriter:
        """Make ``folder`` and start its record with ``header``.

        Raises:
            RecordError: the folder cannot be made or written, or already holds a run.
        """
        path = Path(folder) / RECORDS_FILE
        with _told(f"make the folder {path.parent}"):
            path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            raise RecordError(f"{path} already holds a run; choose another output folder")
        with _told(f"write {path}"):
            stream = open(path, "xb", buffering=0)  # noqa: SIM115 - held for the run's length
        writer = cls(path, header, stream)
        try:
            writer._append(header)
            _sync_folder(path.parent)
        except BaseException:
            # A file without a header is no run, and would refuse the next attempt in this folder.
            stream.close()
            path.unlink(missing_ok=True)
            raise
        return writer

    @classmethod
    def reopen(cls, run: StoredRun) -> RunWriter:
        """Go on with a run that has no end mark; a line that was cut short goes.

        Raises:
            RecordError: the run has ended, or its file cannot be written.
        """
        if run.end is not None:
            raise RecordError(f"{run.path} holds a run that has ended; choose another output folder")
        with _told(f"write {run.path}"):
            stream = open(run.path, "r+b", buffering=0)  # noqa: SIM115 - held for the run's length
            stream.truncate(run.path.read_bytes().rfind(b"\n") + 1)
            stream.seek(0, os.SEEK_END)
        return cls(run.path, run.header, stream, len(run.rows))

    def row(self, row: Row) -> None:
        """Append one row; it is on disk when this returns.

        Raises:
            RecordError: it could not be written, the run has ended, or it was read with caches in another state
                than this run's; the rows before it are intact.
        """
        refuse_other_caches(self.header, row)
        self._append(row)
        self.rows += 1

    def end(self, end: RunEnd) -> None:
        """Append the end mark and close the file; a second call does nothing."""
        if self._file.closed:
            return
        try:
            self._append(end)
        finally:
            self._file.close()

    def close(self) -> None:
        """Close the file without an end mark, as for a run that was cut short; idempotent."""
        self._file.close()

    def _append(self, record: Record) -> None:
        if self._file.closed:
            raise RecordError(f"{self.path} is closed after {self.rows} rows; start another run for more")
        try:
            view = memoryview(record.model_dump_json(exclude_none=True).encode() + b"\n")
        except PydanticSerializationError as error:
            raise RecordError(
                f"cannot write to {self.path}: {error}; the record holds text that is not Unicode"
            ) from error
        start = os.fstat(self._file.fileno()).st_size
        try:
            with _told(f"write to {self.path}", f"its {self.rows} earlier rows are intact"):
                while view:
                    view = view[self._file.write(view) :]
                os.fsync(self._file.fileno())
        except BaseException:
            try:
                self._file.truncate(start)
                # Truncating leaves the position behind the new end, and the next line would start with a hole.
                self._file.seek(start)
            except OSError:
                # The reader copes with a last line that is cut short, not with one in the middle.
                self._file.close()
            raise


def refuse_other_caches(header: RunHeader, row: Row) -> None:
    """Check that ``row`` was read with the caches that its run declares: a run is cold or warm, never both.

    Raises:
        RecordError: it was not.
    """
    declared = header.protocol.cache
    if row.timing is not None and row.timing.cache is not declared:
        raise RecordError(
            f"{row.case} / {row.implementation} was read with {row.timing.cache.value} caches, and the run"
            f" {header.run} is a {declared.value} one; record it in a run of its own"
        )


def read_run(path: Path | str) -> StoredRun:
    """Read a run folder, or its ``records.jsonl``.

    Raises:
        RecordError: there is no such file, it is no run, its format is newer than this program, or a line
            other than a cut-off last one is malformed; the message gives the line.
    """
    file = Path(path)
    if file.is_dir():
        file = file / RECORDS_FILE
    with _told(f"read {file}", "name a folder that holds a run"):
        lines = file.read_bytes().split(b"\n")
    tail, version = lines.pop(), FORMAT_VERSION
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        place = f"{file}:{number}"
        raw = _raw(line, place)
        if raw["kind"] == "header":
            version, raw["format_version"] = raw.get("format_version"), FORMAT_VERSION
            if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
                raise RecordError(
                    f"{place}: format {version}, this program reads 1 to {FORMAT_VERSION};"
                    " use the kernelmark that wrote it, or a newer one"
                )
        for step in range(version, FORMAT_VERSION):
            raw = _UPGRADES[step](raw)
        records.append(_parse(raw, place))
    if not records or not isinstance(header := records[0], RunHeader):
        raise RecordError(f"{file}:1: the first line must be a run's header; is this a kernelmark run?")
    rows, end = list[Row](), None
    for number, record in enumerate(records[1:], start=2):
        if isinstance(record, Row):
            rows.append(record)
        elif isinstance(record, RunEnd) and number == len(records):
            end = record
        else:
            raise RecordError(
                f"{file}:{number}: a {type(record).__name__} inside a run; only rows may stand there"
            )
    return StoredRun(file, header, tuple(rows), end, truncated=bool(tail))


def _raw(line: bytes, place: str) -> dict[str, Any]:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{place}: not JSON: {error}") from error
    kind = raw.get("kind") if isinstance(raw, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise RecordError(f"{place}: unknown kind {kind!r}; expected one of {sorted(_KINDS)}")
    return raw


def _parse(raw: dict[str, Any], place: str) -> Record:
    try:
        return _KINDS[raw["kind"]].model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or raw["kind"]
        got = f", and is {first['input']!r}" if isinstance(first["input"], str | float | int) else ""
        raise RecordError(f"{place}: {where}: {first['msg']}{got}") from error


# --- what older formats become -----------------------------------------------------------------------


def _notes_are_values(raw: dict[str, Any]) -> dict[str, Any]:
    """Format 1 to 2: sentences become notes of the kind ``text``, which the types make of them; blank ones go."""
    timing, roofline = (
        raw[name] if isinstance(raw.get(name), dict) else {} for name in ("timing", "roofline")
    )
    for holder in (raw, timing, timing.get("device_busy"), timing.get("latency")):
        if isinstance(holder, dict) and "notes" in holder:
            holder["notes"] = [text for text in holder["notes"] if text]
    for holder, key in ((raw, "note"), (roofline, "anomaly"), (roofline, "note")):
        if not holder.get(key):
            holder.pop(key, None)
    return raw


_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _notes_are_values}
"""By the format that it reads, what makes the next one of a record; it may change the record that it is given."""


def _sync_folder(folder: Path) -> None:
    """Put the file's name on disk too; without it a power cut loses the whole file, not its last line."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # some network file systems refuse to sync a folder; the file itself is synced
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
