"""What a worker is asked, and what it answers: a job as a file, answers as lines that survive its death.

The first line that a job makes of a candidate says that it begins, so that whoever reads the file afterwards knows at
which candidate and in which stage a worker died.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmark.models.request import ModelRequest
from kernelmark.models.tuning.space import Candidate
from kernelmark.records import Row, RunHeader
from kernelmark.timing import Budget
from torchsched.elements import Element

__all__ = ["Answer", "Answers", "CheckJob", "Job", "MeasureJob", "read_answers", "read_job", "write_job"]


@dataclass(frozen=True, slots=True)
class CheckJob:
    """Compile each candidate and check its answer."""

    request: ModelRequest
    element: Element
    header: RunHeader
    case_id: str
    candidates: tuple[Candidate, ...]
    known: Mapping[str, str]
    """Digest of code that has been checked → the label of the candidate that has it."""
    limit_s: float


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """Compile all contestants, and time them in one interleaved run; the first is what the others are compared with."""

    request: ModelRequest
    element: Element
    header: RunHeader
    case_id: str
    candidates: tuple[Candidate, ...]
    budget: Budget
    facts: Mapping[str, Any]
    limit_s: float


Job = CheckJob | MeasureJob


def write_job(job: Job, path: Path) -> Path:
    """Write a job where a worker of this machine and this version finds it."""
    path.write_bytes(pickle.dumps(job))
    return path


def read_job(path: Path) -> Job:
    """Read what :func:`write_job` wrote."""
    return pickle.loads(path.read_bytes())


class Answers:
    """Where a worker's answers go, a line each, out of the process before the next thing is begun."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - held for the process's length

    def begin(self, candidate: Candidate, stage: str) -> None:
        """Say that a stage of a candidate begins."""
        self._line({"candidate": candidate.number, "stage": stage})

    def row(self, row: Row) -> None:
        """Hand over a row."""
        self._file.write(b'{"row": ' + row.model_dump_json(exclude_none=True).encode() + b"}\n")

    def error(self, error: Exception) -> None:
        """Say what ended the job."""
        self._line({"error": type(error).__name__, "message": str(error)})

    def end(self) -> None:
        """Say that the job is done."""
        self._line({"end": True})
        self._file.close()

    def _line(self, value: dict[str, Any]) -> None:
        self._file.write(json.dumps(value).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker had answered when it ended."""

    rows: tuple[Row, ...]
    ended: bool
    """Whether it came to its end."""
    at: int | None = None
    """The candidate that it was at last."""
    stage: str = ""
    """What it did with it."""
    error: tuple[str, str] | None = None
    """Class and message of the error that ended it."""


def read_answers(path: Path) -> Answer:
    """Read a worker's answers; a line that its death cut short is left out."""
    rows: list[Row] = []
    at, stage, error, ended = None, "", None, False
    for value in _lines(path):
        if "row" in value:
            rows.append(Row.model_validate_json(json.dumps(value["row"])))
        elif "error" in value:
            error = (str(value["error"]), str(value["message"]))
        elif "end" in value:
            ended = True
        else:
            at, stage = int(value["candidate"]), str(value["stage"])
    return Answer(tuple(rows), ended, at, stage, error)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_bytes().split(b"\n")[:-1]:
            yield json.loads(line)
