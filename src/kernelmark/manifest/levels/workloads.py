"""Levels ``workload``, ``shape`` and ``dtype``: what the library makes of each call, held against the manifest.

Each call's workload is built once, and its inputs and its reference are made on torch's fake tensors: the shapes
and dtypes of real ones, no memory and no values. What looks at values cannot run so; then the reason is a note.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelmark.errors import ManifestError, UnavailableError, UsageError
from kernelmark.manifest.levels import Finding, Level, LevelResult, Severity, finding_from
from kernelmark.manifest.op import Manifest, OpSpec, TensorSpec, WorkloadCall, WorkloadRow
from kernelmark.text import in_short

__all__ = [
    "NotRun",
    "Source",
    "Workloads",
    "check_dtypes",
    "check_shapes",
    "check_workloads",
    "input_problem",
]

_NEEDED = ("gen_inputs", "verification")
_WITHOUT_VALUES = "does not run on tensors without values"


@dataclass(frozen=True, slots=True)
class NotRun:
    """Why a structure is not known."""

    reason: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where the workloads of an op come from: its entry in the library's registry.

    ``inputs`` makes a workload's inputs in place of its ``gen_inputs()``, where the entry has such a function.
    """

    build: Callable[[WorkloadCall], Any]
    inputs: Callable[[Any], Any] | None = None


@dataclass(slots=True)
class _Built:
    """What became of a call's workload: the object or what is wrong, and the structures of its inputs and outputs."""

    workload: Any = None
    wrong: tuple[str, str] | None = None
    """Where, and what."""
    inputs: tuple[TensorSpec | None, ...] | NotRun = NotRun("there is no workload")
    outputs: tuple[TensorSpec, ...] | NotRun = NotRun("there is no workload")


@dataclass(slots=True)
class Workloads:
    """Builds each call's workload and runs its reference once, however many levels ask.

    Args:
        source_of: Gives the entry of an op, ``None`` where it has none.
        registry: What to call the place of the entries in a message.
        root: The library's folder; the place of an error is in there.
        require: Refuses, as a UsageError, a workload whose ``verification()`` no run could follow.
    """

    source_of: Callable[[str], Source | None]
    registry: str
    root: Path
    require: Callable[[Any], Any] = lambda _workload: None
    _known: dict[str, _Built] = field(default_factory=dict)

    def of(self, call: WorkloadCall, place: str) -> _Built:
        """Give what became of the workload of ``call``, which is declared at ``place``."""
        if call.id not in self._known:
            self._known[call.id] = self._make(call, place)
        return self._known[call.id]

    def _make(self, call: WorkloadCall, place: str) -> _Built:
        source = self.source_of(call.op)
        if source is None:
            message = (
                f"{call.op} has no entry in {self.registry}; add {call.op!r}: Entry(...) to the ENTRIES there"
            )
            return _Built(wrong=(place, message))
        try:
            workload = source.build(call)
        except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is what the level has to tell
            return _Built(wrong=(self._raised_at(error, place), f"the entry raised {in_short(error)}"))
        where = self._defined_at(type(workload), place)
        missing = [name for name in _NEEDED if not callable(getattr(workload, name, None))]
        if missing and not (missing == ["gen_inputs"] and source.inputs is not None):
            message = (
                f"the entry built {type(workload).__name__}, which has no {' and no '.join(f'{n}()' for n in missing)};"
                " a workload needs gen_inputs(), reference and verification()"
            )
            return _Built(wrong=(where, message))
        try:
            self.require(workload)
        except UsageError as error:
            return _Built(wrong=(where, str(error)))
        except Exception as error:  # noqa: BLE001 - foreign code, as where it is built
            return _Built(wrong=(self._raised_at(error, where), f"verification() raised {in_short(error)}"))
        built = _Built(workload, inputs=_inputs(workload, source))
        built.outputs = _outputs(workload, call)
        return built

    def _raised_at(self, error: BaseException, otherwise: str) -> str:
        """Give the innermost line of the library's that ``error`` passed through."""
        own = [
            f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(self.root)
        ]
        return f"{own[-1].filename}:{own[-1].lineno}" if own else otherwise

    def _defined_at(self, kind: type, otherwise: str) -> str:
        try:
            return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
        except (OSError, TypeError):  # a class made on the fly, or not in Python
            return otherwise


def check_workloads(manifest: Manifest, workloads: Workloads) -> LevelResult:
    """Level ``workload``: each call has a workload that can be built, and whose inputs are those declared."""
    findings: list[Finding] = []
    checked = 0
    for spec, row, case in _each_case(manifest):
        call = _made(Level.WORKLOAD, spec, row, case)
        if isinstance(call, Finding):
            continue  # the shape level tells it
        built = workloads.of(call, str(row.place))
        found = _input_finding(call, row, built)
        checked += found is None
        findings += [found] if found else []
    return LevelResult(Level.WORKLOAD, checked, "calls", _once(findings))


def check_shapes(manifest: Manifest, workloads: Workloads) -> LevelResult:
    """Level ``shape``: rows' shapes and rooflines have values; outputs are shaped as the reference's are."""
    findings: list[Finding] = []
    checked = 0
    for spec, row, case in _each_case(manifest):
        call = _made(Level.SHAPE, spec, row, case)
        if isinstance(call, Finding):
            findings.append(call)
            continue
        found = [_roofline(call), _compare_outputs(Level.SHAPE, row, call, workloads, _shapes_differ)]
        checked += not any(found)
        findings += [finding for finding in found if finding]
    return LevelResult(Level.SHAPE, checked, "calls", tuple(findings))


def check_dtypes(manifest: Manifest, workloads: Workloads) -> LevelResult:
    """Level ``dtype``: rows ask for dtypes that the op takes, and outputs have those of the reference's."""
    findings: list[Finding] = []
    checked = 0
    for spec, row, case in _each_case(manifest):
        if problems := spec.dtype_problems(row, case):
            findings += [finding_from(Level.DTYPE, problem) for problem in problems]
            continue
        call = _made(Level.DTYPE, spec, row, case)
        found = call if isinstance(call, Finding) else None
        if not isinstance(call, Finding):
            found = _compare_outputs(Level.DTYPE, row, call, workloads, _dtypes_differ)
        checked += found is None
        findings += [found] if found else []
    return LevelResult(Level.DTYPE, checked, "calls", tuple(findings))


def _each_case(manifest: Manifest) -> Iterator[tuple[OpSpec, WorkloadRow, dict[str, str]]]:
    for spec in manifest.ops.values():
        for row, case in spec.cases():
            yield spec, row, dict(case)


def _made(level: Level, spec: OpSpec, row: WorkloadRow, case: dict[str, str]) -> WorkloadCall | Finding:
    """Make the call, or the finding that says why there is none."""
    try:
        return spec.instantiate(row, case)
    except ManifestError as error:
        return finding_from(level, error)


def _once(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Leave out what was found at the same place before: one op without an entry is one finding, not one a call."""
    return tuple(dict.fromkeys(findings))


# --- inputs


def _input_finding(call: WorkloadCall, row: WorkloadRow, built: _Built) -> Finding | None:
    if built.wrong is not None:
        return Finding(Level.WORKLOAD, *built.wrong)
    where = f"{row.place}: {call.id}"
    if isinstance(built.inputs, NotRun):
        return Finding(Level.WORKLOAD, where, f"inputs not checked: {built.inputs.reason}", Severity.NOTE)
    problem = input_problem(call, built.inputs)
    return Finding(Level.WORKLOAD, where, problem) if problem else None


def input_problem(call: WorkloadCall, given: Sequence[TensorSpec | None]) -> str | None:
    """Say how the inputs differ from the declared ones; the message names the first that does."""
    names = call.signature
    if len(given) != len(names):
        return (
            f"gen_inputs() gives {len(given)} inputs; the manifest says {len(names)}: {', '.join(names)}"
            " (None for an optional one that the row does not give)"
        )
    for name, found in zip(names, given, strict=True):
        declared = call.tensors.get(name)
        if found != declared:
            expected = declared or "that it is not given"
            return f"gen_inputs() gives {name} as {found or 'None'}; the manifest says {expected}"
    return None


def _inputs(workload: Any, source: Source) -> tuple[TensorSpec | None, ...] | NotRun:
    make = workload.gen_inputs if source.inputs is None else lambda: source.inputs(workload)  # type: ignore[misc]
    try:
        made = _without_values(make)
    except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is the reason it did not run
        return NotRun(f"gen_inputs() {_WITHOUT_VALUES}: {in_short(error)}")
    return _structure(made if isinstance(made, tuple | list) else (made,), "gen_inputs() gives")


# --- outputs


def _outputs(workload: Any, call: WorkloadCall) -> tuple[TensorSpec, ...] | NotRun:
    reference = getattr(workload, "reference", None)
    if reference is None:
        return NotRun("the case has no reference")
    try:
        returned = _without_values(lambda: reference(*_declared_inputs(call)))
    except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is the reason it did not run
        return NotRun(f"the reference {_WITHOUT_VALUES}: {in_short(error)}")
    outputs = () if returned is None else returned if isinstance(returned, tuple | list) else (returned,)
    found = _structure(outputs, "the reference returns")
    if isinstance(found, tuple) and None in found:
        return NotRun("the reference returns NoneType, which is no tensor")
    return found  # type: ignore[return-value] - without None


def _declared_inputs(call: WorkloadCall) -> list[Any]:
    import torch

    specs = [call.tensors.get(name) for name in call.signature]
    return [spec and torch.empty(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in specs]


def _without_values(function: Callable[[], Any]) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    # A workload may hold real tensors that its reference reads; only those made here are fake.
    with FakeTensorMode(allow_non_fake_inputs=True):
        return function()


def _structure(values: Sequence[Any], given: str) -> tuple[TensorSpec | None, ...] | NotRun:
    import torch

    for value in values:
        if value is not None and not isinstance(value, torch.Tensor):
            return NotRun(f"{given} {type(value).__name__}, which is no tensor")
    return tuple(
        v if v is None else TensorSpec(tuple(v.shape), str(v.dtype).removeprefix("torch.")) for v in values
    )


def _compare_outputs(
    level: Level,
    row: WorkloadRow,
    call: WorkloadCall,
    workloads: Workloads,
    differ: Callable[[str, TensorSpec, TensorSpec], str | None],
) -> Finding | None:
    """Compare the declared outputs with the reference's; ``differ`` says how one differs, or ``None``."""
    where = f"{row.place}: {call.id}"
    got = workloads.of(call, str(row.place)).outputs
    if isinstance(got, NotRun):
        return Finding(level, where, f"outputs not checked: {got.reason}", Severity.NOTE)
    if len(got) != len(call.outputs):
        return Finding(
            level, where, f"{len(call.outputs)} output(s) declared, the reference gives {len(got)}"
        )
    pairs = zip(call.outputs.items(), got, strict=True)
    differences = [text for (name, declared), found in pairs if (text := differ(name, declared, found))]
    return Finding(level, where, "; ".join(differences)) if differences else None


def _shapes_differ(name: str, declared: TensorSpec, found: TensorSpec) -> str | None:
    if declared.shape == found.shape:
        return None
    return f"output {name!r} is {list(declared.shape)} here, {list(found.shape)} from the reference"


def _dtypes_differ(name: str, declared: TensorSpec, found: TensorSpec) -> str | None:
    if declared.dtype == found.dtype:
        return None
    return f"output {name!r} is {declared.dtype} here, {found.dtype} from the reference"


def _roofline(call: WorkloadCall) -> Finding | None:
    try:
        call.roofline()
    except ManifestError as error:
        return finding_from(Level.SHAPE, error)
    except UnavailableError as error:
        where = f"{call.declared_roofline.place}: {call.id}"
        return Finding(Level.SHAPE, where, f"work not counted: {error}", Severity.NOTE)
    return None
