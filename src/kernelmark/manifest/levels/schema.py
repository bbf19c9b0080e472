"""Level ``schema``: the manifest's files load."""

from __future__ import annotations

from pathlib import Path

from kernelmark.errors import ManifestError
from kernelmark.manifest.levels.finding import Finding, Level, LevelResult
from kernelmark.manifest.loader import read_manifest

__all__ = ["check", "finding_from"]


def check(folder: Path) -> LevelResult:
    """Read the folder; every problem of every file is a finding."""
    manifest, problems = read_manifest(folder)
    findings = tuple(finding_from(Level.SCHEMA, problem) for problem in problems)
    return LevelResult(Level.SCHEMA, len(manifest.files), "files", findings)


def finding_from(level: Level, error: ManifestError) -> Finding:
    """Make the finding that says what ``error`` says."""
    where = str(error.path or "manifest")
    if error.line is not None:
        where += f":{error.line}"
    return Finding(level, f"{where}: {error.field}" if error.field else where, error.message)
