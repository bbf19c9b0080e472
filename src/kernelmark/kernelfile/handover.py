"""What is handed to a worker and to a judge, and what they hand back; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernelmark.kernelfile.request import Request
from kernelmark.records import OutputCheck

__all__ = ["Job", "SecondCheck"]


@dataclass(frozen=True, slots=True)
class Job:
    """What a process of its own is to do."""

    folder: Path
    """Where the worker leaves its run, and its answers for the judge."""
    request: Request
    library: Path | None
    seed: int | None = None
    """What the values of the second check are drawn with; the judge is told, a worker asks after timing."""


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
    outputs: tuple[OutputCheck, ...] = ()
    """What was found of each output."""
