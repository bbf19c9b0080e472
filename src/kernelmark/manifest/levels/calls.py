"""What the levels ``shape`` and ``dtype`` share: each call, against what its reference gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernelmark.errors import ManifestError
from kernelmark.manifest.call import TensorSpec, WorkloadCall
from kernelmark.manifest.levels.finding import Finding, Level, Severity
from kernelmark.manifest.levels.schema import finding_from
from kernelmark.manifest.levels.structure import NotRun, References
from kernelmark.manifest.spec import Manifest, OpSpec, WorkloadRow

__all__ = ["compare_outputs", "each_case", "made"]


def each_case(manifest: Manifest) -> Iterator[tuple[OpSpec, WorkloadRow, dict[str, str]]]:
    """Give every row of every op with each of its dtype cases."""
    for spec in manifest.ops.values():
        for row, case in spec.cases():
            yield spec, row, dict(case)


def made(level: Level, spec: OpSpec, row: WorkloadRow, case: dict[str, str]) -> WorkloadCall | Finding:
    """Make the call, or the finding that says why there is none."""
    try:
        return spec.instantiate(row, case)
    except ManifestError as error:
        return finding_from(level, error)


def compare_outputs(
    level: Level,
    row: WorkloadRow,
    call: WorkloadCall,
    references: References,
    differ: Callable[[str, TensorSpec, TensorSpec], str | None],
) -> Finding | None:
    """Compare the declared outputs with the reference's; ``differ`` says how one differs, or ``None``."""
    got = references.outputs_of(call)
    where = f"{row.place}: {call.id}"
    if isinstance(got, NotRun):
        return Finding(level, where, f"outputs not checked: {got.reason}", Severity.NOTE)
    if len(got) != len(call.outputs):
        message = f"{len(call.outputs)} output(s) declared, the reference gives {len(got)}"
        return Finding(level, where, message)
    pairs = zip(call.outputs.items(), got, strict=True)
    differences = [text for (name, declared), found in pairs if (text := differ(name, declared, found))]
    return Finding(level, where, "; ".join(differences)) if differences else None
