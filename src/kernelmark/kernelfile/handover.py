"""What a child process and its parent leave for each other in the folder of a job, besides the records."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernelmark.files import replace
from kernelmark.kernelfile.request import Request

__all__ = [
    "ANSWERS",
    "FACTS",
    "OUTCOME",
    "READY",
    "SECOND",
    "TIMED",
    "Job",
    "Outcome",
    "SecondCheck",
    "write_json",
]

READY, TIMED, ANSWERS = "ready", "timed", "answers"
"""The worker has started up; it has timed, and waits for a seed; what it answered for that seed."""
FACTS, OUTCOME, SECOND = "facts.json", "outcome.json", "second.json"
"""What a worker found out; how a job ended; what the second check found."""
_JOB = "job.json"


@dataclass(frozen=True, slots=True)
class Job:
    """What a child is to do, and the folder in which it is told and answers."""

    folder: Path
    request: Request
    library: Path | None
    seed: int | None = None
    """What the values of the second check are drawn with; a worker is told after timing."""
    answers: Path | None = None
    """The folder in which a worker has left its answers, for a judge."""

    def write(self) -> None:
        """Leave it for the child."""
        paths = {"library": self.library, "answers": self.answers}
        told = {name: str(path) if path else None for name, path in paths.items()}
        write_json(self.folder / _JOB, {**told, "request": self.request.to_json(), "seed": self.seed})

    @classmethod
    def read(cls, folder: Path) -> Job:
        """Read what :meth:`write` left."""
        told = json.loads((folder / _JOB).read_text(encoding="utf-8"))
        library, answers = (Path(path) if path else None for path in (told["library"], told["answers"]))
        return cls(folder, Request.from_json(told["request"]), library, told["seed"], answers)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended, as far as the child can tell itself."""

    error: str = ""
    """The class of what stopped it; blank if nothing did."""
    message: str = ""
    traceback: str = ""
    notes: dict[str, list[str]] = field(default_factory=dict)
    """What a reader must know about a row, by the row's name."""

    def write(self, folder: Path) -> None:
        """Leave it for the parent; a job has ended when this is there."""
        write_json(folder / OUTCOME, asdict(self))


@dataclass(frozen=True, slots=True)
class SecondCheck:
    """What was found when the answers were checked again, where no solution was ever loaded."""

    wrong: str = ""
    """What is wrong with them; blank if nothing is."""
    vacuous: str = ""
    """Why a right answer proves nothing; blank if it proves something."""
    undone: str = ""
    """Why they could not be handed over to be checked again; blank if they were."""
    broken: str = ""
    """What stopped the check itself; blank if nothing did."""
    outputs: tuple[dict[str, Any], ...] = ()
    """What was found of each output, as the records have it."""

    def write(self, folder: Path) -> None:
        """Leave it for the parent."""
        write_json(folder / SECOND, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> SecondCheck:
        """Read what :meth:`write` left."""
        told = json.loads((folder / SECOND).read_text(encoding="utf-8"))
        return cls(**{**told, "outputs": tuple(told["outputs"])})


def write_json(path: Path, value: Any) -> None:
    """Write a file that is there completely or not at all."""
    replace(path, json.dumps(value))
