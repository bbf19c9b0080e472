"""Reads and writes ``records.jsonl``: one record a line, on disk before the next one is made.

Format history
    1: header, rows, end.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from kernelmark.errors import RecordError
from kernelmark.records.model import Record, Row, RunEnd, RunHeader

__all__ = ["FORMAT_VERSION", "RECORDS_FILE", "RunWriter", "StoredRun", "read_run"]

FORMAT_VERSION = 1
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

    Build one with :meth:`create`. It never rewrites what it wrote.
    """

    path: Path
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
            stream = open(path, "xb", buffering=0)  # noqa: SIM115 - held for the run's length
        except FileExistsError as error:
            raise RecordError(f"{path} already holds a run; choose another output folder") from error
        except OSError as error:
            raise RecordError(
                f"cannot write {path}: {error.strerror}; choose another output folder"
            ) from error
        writer = cls(path, stream)
        writer._append(header)
        return writer

    def row(self, row: Row) -> None:
        """Append one row; it is on disk when this returns.

        Raises:
            RecordError: it could not be written; the rows before it are intact.
        """
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
        line = record.model_dump_json(exclude_none=True).encode() + b"\n"
        start = os.fstat(self._file.fileno()).st_size
        try:
            view = memoryview(line)
            while view:
                view = view[self._file.write(view) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            self._drop_partial_line(start)
            raise RecordError(
                f"cannot write to {self.path}: {error.strerror}; its {self.rows} earlier rows are intact"
            ) from error

    def _drop_partial_line(self, start: int) -> None:
        try:
            os.ftruncate(self._file.fileno(), start)
        except OSError:
            pass  # the reader copes with a last line that is cut short


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
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        records.append(_parse(line, file, number))
    if not records or not isinstance(records[0], RunHeader):
        raise RecordError(f"{file}:1: the first line must be a run's header; is this a kernelmark run?")
    end = records[-1] if isinstance(records[-1], RunEnd) else None
    return StoredRun(
        path=file,
        header=records[0],
        rows=tuple(r for r in records if isinstance(r, Row)),
        end=end,
        truncated=bool(tail),
    )


def _parse(line: bytes, file: Path, number: int) -> Record:
    try:
        raw = json.loads(line)
    except ValueError as error:
        raise RecordError(f"{file}:{number}: not JSON: {error}") from error
    kind = raw.get("kind") if isinstance(raw, dict) else None
    if kind not in _KINDS:
        raise RecordError(f"{file}:{number}: unknown kind {kind!r}; expected one of {sorted(_KINDS)}")
    version = raw.get("format_version")
    if kind == "header" and version != FORMAT_VERSION:
        raise RecordError(
            f"{file}:{number}: format {version}, this program reads {FORMAT_VERSION};"
            " use the kernelmark that wrote it, or a newer one"
        )
    try:
        return _KINDS[kind].model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{file}:{number}: {where}: {first['msg']}") from error
