"""The validator: what a library's manifest, classes, workloads and benchmark files say, held against each other.

Each level gives values; nothing here prints or decides an exit code.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernelmark.errors import ManifestError
from kernelmark.manifest.reading import read_manifest

__all__ = ["Finding", "Level", "LevelResult", "Severity", "check_files", "finding_from"]


class Level(StrEnum):
    """The levels, in the order in which they are run."""

    SCHEMA = "schema"
    SIGNATURE = "signature"
    WORKLOAD = "workload"
    SHAPE = "shape"
    DTYPE = "dtype"
    BENCH = "bench"
    COVERAGE = "coverage"


class Severity(StrEnum):
    """Whether a finding fails the level, or says what the level could not look at."""

    ERROR = "error"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found, with the place where a reader should look."""

    level: Level
    where: str
    message: str
    severity: Severity = Severity.ERROR


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
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """What the level could not check, and why."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.NOTE)


def check_files(folder: Path) -> LevelResult:
    """Level ``schema``: read the manifest's folder; every problem of every file is a finding."""
    manifest, problems = read_manifest(folder)
    findings = tuple(finding_from(Level.SCHEMA, problem) for problem in problems)
    return LevelResult(Level.SCHEMA, len(manifest.files), "files", findings)


def finding_from(level: Level, error: ManifestError) -> Finding:
    """Make the finding that says what ``error`` says."""
    where = str(error.path or "manifest") + ("" if error.line is None else f":{error.line}")
    return Finding(level, f"{where}: {error.field}" if error.field else where, error.message)
