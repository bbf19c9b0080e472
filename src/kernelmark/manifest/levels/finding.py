"""What a validator level says, as values: how much it checked, and what it found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Level", "LevelResult", "Severity"]


class Level(StrEnum):
    """The levels, in the order in which they are run."""

    SCHEMA = "schema"
    SIGNATURE = "signature"
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
        return self._of(Severity.ERROR)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """What the level could not check, and why."""
        return self._of(Severity.NOTE)

    def _of(self, severity: Severity) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is severity)
