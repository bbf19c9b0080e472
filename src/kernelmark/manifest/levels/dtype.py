"""Level ``dtype``: rows ask for dtypes that the op takes, and outputs have the dtypes of the reference's."""

from __future__ import annotations

from kernelmark.manifest.call import TensorSpec
from kernelmark.manifest.levels.calls import compare_outputs, each_case, made
from kernelmark.manifest.levels.finding import Finding, Level, LevelResult
from kernelmark.manifest.levels.schema import finding_from
from kernelmark.manifest.levels.structure import References
from kernelmark.manifest.spec import Manifest

__all__ = ["check"]


def check(manifest: Manifest, references: References) -> LevelResult:
    """Look at every dtype case, then compare the dtypes of the outputs."""
    findings: list[Finding] = []
    checked = 0
    for spec, row, case in each_case(manifest):
        if problems := spec.dtype_problems(row, case):
            findings += [finding_from(Level.DTYPE, problem) for problem in problems]
            continue
        call = made(Level.DTYPE, spec, row, case)
        found = call if isinstance(call, Finding) else None
        if not isinstance(call, Finding):
            found = compare_outputs(Level.DTYPE, row, call, references, _differ)
        checked += found is None
        findings += [found] if found else []
    return LevelResult(Level.DTYPE, checked, "calls", tuple(findings))


def _differ(name: str, declared: TensorSpec, found: TensorSpec) -> str | None:
    if declared.dtype == found.dtype:
        return None
    return f"output {name!r} is {declared.dtype} here, {found.dtype} from the reference"
