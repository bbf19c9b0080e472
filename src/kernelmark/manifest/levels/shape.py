"""Level ``shape``: each row's shapes and roofline have values; outputs are shaped as the reference's are."""

from __future__ import annotations

from kernelmark.errors import ManifestError, UnavailableError
from kernelmark.manifest.call import TensorSpec, WorkloadCall
from kernelmark.manifest.levels.calls import compare_outputs, each_case, made
from kernelmark.manifest.levels.finding import Finding, Level, LevelResult, Severity
from kernelmark.manifest.levels.schema import finding_from
from kernelmark.manifest.levels.structure import References
from kernelmark.manifest.spec import Manifest

__all__ = ["check"]


def check(manifest: Manifest, references: References) -> LevelResult:
    """Make every call, count its work, and compare its output shapes."""
    findings: list[Finding] = []
    checked = 0
    for spec, row, case in each_case(manifest):
        call = made(Level.SHAPE, spec, row, case)
        if isinstance(call, Finding):
            findings.append(call)
            continue
        found = [_roofline(call), compare_outputs(Level.SHAPE, row, call, references, _differ)]
        checked += not any(found)
        findings += [finding for finding in found if finding]
    return LevelResult(Level.SHAPE, checked, "calls", tuple(findings))


def _roofline(call: WorkloadCall) -> Finding | None:
    try:
        call.roofline()
    except ManifestError as error:
        return finding_from(Level.SHAPE, error)
    except UnavailableError as error:
        where = f"{call.declared_roofline.place}: {call.id}"
        return Finding(Level.SHAPE, where, f"work not counted: {error}", Severity.NOTE)
    return None


def _differ(name: str, declared: TensorSpec, found: TensorSpec) -> str | None:
    if declared.shape == found.shape:
        return None
    return f"output {name!r} is {list(declared.shape)} here, {list(found.shape)} from the reference"
