"""Which of a manifest's cases a stored run measured, and which not."""

from __future__ import annotations

from collections import defaultdict

from kernelmark.manifest.levels.finding import Finding, Level, LevelResult, Severity
from kernelmark.manifest.spec import Manifest
from kernelmark.records import Row, StoredRun

__all__ = ["check"]


def check(manifest: Manifest, run: StoredRun) -> LevelResult:
    """Compare the manifest's cases with the run's rows; a case is measured if a row of it has a time."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in run.rows:
        rows[row.case].append(row)
    findings: list[Finding] = []
    measured = 0
    known: set[str] = set()
    for spec in manifest.ops.values():
        for row, case in spec.cases():
            name = spec.call_id(row, case)
            known.add(name)
            if any(r.timing is not None for r in rows.get(name, ())):
                measured += 1
            else:
                reason = _why_not(rows.get(name, []), run)
                findings.append(Finding(Level.COVERAGE, f"{row.place}: {name}", f"not measured: {reason}"))
    for name, found in rows.items():
        if name not in known and found[0].op is not None:
            message = f"{run.path} measured case {name} of {found[0].op}, which this manifest does not have"
            findings.append(Finding(Level.COVERAGE, str(manifest.folder), message, Severity.NOTE))
    return LevelResult(Level.COVERAGE, measured, "cases measured", tuple(findings))


def _why_not(rows: list[Row], run: StoredRun) -> str:
    if not rows:
        return "the run has no row of it"
    if run.header.protocol.verify_only:
        return "the run only checked, it did not time"
    return "; ".join(f"{row.implementation} {row.check.value}: {row.note}" for row in rows)
