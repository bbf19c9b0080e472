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
from collections.abc import Callable
from contextlib import suppress
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
    """A run as read back.

    ``truncated`` is True where the file ends inside a line, as it does after a power cut or a full disk;
    every whole line before it is here.
    """

    path: Path
    header: RunHeader
    rows: tuple[Row, ...]
    end: RunEnd | None = None
    truncated: bool = False


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
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(
                f"cannot make the folder {path.parent}: {error.strerror}; choose another output folder"
            ) from error
        try:
            stream = open(path, "xb", buffering=0)  # noqa: SIM115 - held for the run's length
        except FileExistsError as error:
            raise RecordError(f"{path} already holds a run; choose another output folder") from error
        except OSError as error:
            raise RecordError(
                f"cannot write {path}: {error.strerror}; choose another output folder"
            ) from error
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
        try:
            stream = open(run.path, "r+b", buffering=0)  # noqa: SIM115 - held for the run's length
            stream.truncate(run.path.read_bytes().rfind(b"\n") + 1)
            stream.seek(0, os.SEEK_END)
        except OSError as error:
            raise RecordError(
                f"cannot write {run.path}: {error.strerror}; choose another output folder"
            ) from error
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
            while view:
                view = view[self._file.write(view) :]
            os.fsync(self._file.fileno())
        except BaseException as error:
            self._drop_partial_line(start)
            if not isinstance(error, OSError):
                raise
            raise RecordError(
                f"cannot write to {self.path}: {error.strerror}; its {self.rows} earlier rows are intact"
            ) from error

    def _drop_partial_line(self, start: int) -> None:
        try:
            self._file.truncate(start)
            # Truncating leaves the position behind the new end, and the next line would start with a hole.
            self._file.seek(start)
        except OSError:
            # The reader copes with a last line that is cut short, not with one in the middle.
            self._file.close()


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
    try:
        data = file.read_bytes()
    except OSError as error:
        raise RecordError(f"cannot read {file}: {error.strerror}; name a folder that holds a run") from error
    lines = data.split(b"\n")
    tail = lines.pop()
    version = FORMAT_VERSION
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        place = f"{file}:{number}"
        raw = _raw(line, place)
        if is_header := raw["kind"] == "header":
            version = _known_version(raw.get("format_version"), place)
        for step in range(version, FORMAT_VERSION):
            raw = _UPGRADES[step](raw)
        records.append(_parse({**raw, "format_version": FORMAT_VERSION} if is_header else raw, place))
    if not records or not isinstance(records[0], RunHeader):
        raise RecordError(f"{file}:1: the first line must be a run's header; is this a kernelmark run?")
    end = records[-1] if isinstance(records[-1], RunEnd) else None
    for number, record in enumerate(records[1 : -1 if end else None], start=2):
        if not isinstance(record, Row):
            raise RecordError(
                f"{file}:{number}: a {type(record).__name__} inside a run; only rows may stand there"
            )
    return StoredRun(
        path=file,
        header=records[0],
        rows=tuple(r for r in records if isinstance(r, Row)),
        end=end,
        truncated=bool(tail),
    )


def _raw(line: bytes, place: str) -> dict[str, Any]:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{place}: not JSON: {error}") from error
    kind = raw.get("kind") if isinstance(raw, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise RecordError(f"{place}: unknown kind {kind!r}; expected one of {sorted(_KINDS)}")
    return raw


def _known_version(version: object, place: str) -> int:
    if isinstance(version, int) and not isinstance(version, bool) and 1 <= version <= FORMAT_VERSION:
        return version
    raise RecordError(
        f"{place}: format {version}, this program reads 1 to {FORMAT_VERSION};"
        " use the kernelmark that wrote it, or a newer one"
    )


def _parse(raw: dict[str, Any], place: str) -> Record:
    try:
        return _KINDS[raw["kind"]].model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or raw["kind"]
        raise RecordError(f"{place}: {where}: {first['msg']}") from error


# --- what older formats become -----------------------------------------------------------------------


def _notes_are_values(raw: dict[str, Any]) -> dict[str, Any]:
    """Format 1 to 2: sentences become notes of the kind ``text``."""

    def note(words: Any) -> dict[str, Any]:
        return {"kind": "text", "values": {"text": words}}

    timing, roofline = (
        held if isinstance(held := raw.get(name), dict) else {} for name in ("timing", "roofline")
    )
    for holder in (raw, timing, timing.get("device_busy"), timing.get("latency")):
        if isinstance(holder, dict) and "notes" in holder:
            holder["notes"] = [note(text) for text in holder["notes"] if text]
    for holder, key in ((raw, "note"), (roofline, "anomaly"), (roofline, "note")):
        if words := holder.pop(key, None):
            holder[key] = note(words)
    return raw


_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _notes_are_values}
"""By the format that it reads, what makes the next one of a record; it may change the record that it is given."""


def _sync_folder(folder: Path) -> None:
    """Put the file's name on disk too; without it a power cut loses the whole file, not its last line."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(
            OSError
        ):  # some network file systems refuse to sync a folder; the file itself is synced
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
