"""The validator: what a library's manifest, classes, workloads and benchmark files say, held against each other.

Each level gives values; nothing here prints or decides an exit code.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernelmark.errors import ManifestError
from kernelmark.manifest.reading import read_manifest

__all__ = ["Finding", "Level", "LevelResult", "check_files"]


class Level(StrEnum):
    """The levels, in the order in which they are run."""

    SCHEMA = "schema"
    SIGNATURE = "signature"
    WORKLOAD = "workload"
    SHAPE = "shape"
    DTYPE = "dtype"
    BENCH = "bench"
    COVERAGE = "coverage"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found, with the place where a reader should look; a note says what could not be looked at."""

    where: str
    message: str
    is_note: bool = False

    @classmethod
    def of(cls, error: ManifestError) -> Finding:
        """Make the finding that says what ``error`` says."""
        where = str(error.path or "manifest") + ("" if error.line is None else f":{error.line}")
        return cls(f"{where}: {error.field}" if error.field else where, error.message)


@dataclass(frozen=True, slots=True)
class LevelResult:
    """One level's outcome: ``checked`` counts ``what`` it looked at and could judge."""

    level: Level
    checked: int
    what: str
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that fail the level."""
        return tuple(finding for finding in self.findings if not finding.is_note)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """What the level could not check, and why."""
        return tuple(finding for finding in self.findings if finding.is_note)


def check_files(folder: Path) -> LevelResult:
    """Level ``schema``: read the manifest's folder; every problem of every file is a finding."""
    manifest, problems = read_manifest(folder)
    return LevelResult(Level.SCHEMA, len(manifest.files), "files", tuple(map(Finding.of, problems)))
