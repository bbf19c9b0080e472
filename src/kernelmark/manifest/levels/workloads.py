"""Levels ``workload``, ``shape`` and ``dtype``: what the library makes of each call, held against the manifest.

Each call's workload is built once, and its inputs and its reference are made on torch's fake tensors: the shapes
and dtypes of real ones, no memory and no values. What looks at values cannot run so; then the reason is a note.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kernelmark.errors import ManifestError, UnavailableError, UsageError
from kernelmark.manifest.levels import Finding, Level, LevelResult
from kernelmark.manifest.op import Manifest, TensorSpec, WorkloadCall, WorkloadRow
from kernelmark.text import in_short

__all__ = ["Source", "Workloads", "check_dtypes", "check_shapes", "check_workloads", "input_problem"]


Source = tuple[Callable[[WorkloadCall], Any], Callable[[Any], Any] | None]
"""What makes the workload of a call; and the workload's inputs in place of its ``gen_inputs()``, if anything does."""


@dataclass(slots=True)
class _Built:
    """What became of a call's workload: what is wrong with it, or the structures of its inputs and outputs.

    Text in place of a structure is the reason why that is not known.
    """

    wrong: Finding | None = None
    inputs: tuple[TensorSpec | None, ...] | str = "there is no workload"
    outputs: tuple[TensorSpec, ...] | str = "there is no workload"


@dataclass(slots=True)
class Workloads:
    """Builds each call's workload and runs its reference once, however many levels ask.

    Args:
        sources: By op, from its entry in the library's registry.
        registry: What to call the place of the entries in a message.
        root: The library's folder; the place of an error is in there.
        require: Refuses, as a UsageError, a workload whose ``verification()`` no run could follow.
    """

    sources: Mapping[str, Source]
    registry: str
    root: Path
    require: Callable[[Any], Any] = lambda _workload: None
    _known: dict[str, _Built] = field(default_factory=dict)

    def of(self, row: WorkloadRow, call: WorkloadCall) -> _Built:
        """Give what became of the workload of ``call``, which ``row`` declares."""
        if call.id not in self._known:
            self._known[call.id] = self._make(str(row.place), call)
        return self._known[call.id]

    def _make(self, place: str, call: WorkloadCall) -> _Built:
        if call.op not in self.sources:
            entry = f"add {call.op!r}: Entry(...) to the ENTRIES there"
            return _wrong(place, f"{call.op} has no entry in {self.registry}; {entry}")
        build, make = self.sources[call.op]
        try:
            workload = build(call)
        except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is what the level has to tell
            return _wrong(self._raised_at(error, place), f"the entry raised {in_short(error)}")
        where = _defined_at(type(workload), place)
        needed = ("verification",) if make is not None else ("gen_inputs", "verification")
        if missing := [f"{name}()" for name in needed if not callable(getattr(workload, name, None))]:
            return _wrong(
                where,
                f"the entry built {type(workload).__name__}, which has no {' and no '.join(missing)};"
                " a workload needs gen_inputs(), reference and verification()",
            )
        try:
            self.require(workload)
        except UsageError as error:
            return _wrong(where, str(error))
        except Exception as error:  # noqa: BLE001 - foreign code, as where it is built
            return _wrong(self._raised_at(error, where), f"verification() raised {in_short(error)}")
        inputs = workload.gen_inputs if make is None else partial(make, workload)
        return _Built(None, _run(inputs, "gen_inputs()", "gives"), _outputs(workload, call))

    def _raised_at(self, error: BaseException, otherwise: str) -> str:
        """Give the innermost line of the library's that ``error`` passed through."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if Path(frame.filename).is_relative_to(self.root)]
        return f"{own[-1].filename}:{own[-1].lineno}" if own else otherwise


def _wrong(where: str, message: str) -> _Built:
    return _Built(Finding(where, message))


def _defined_at(kind: type, otherwise: str) -> str:
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):  # a class made on the fly, or not in Python
        return otherwise


def _outputs(workload: Any, call: WorkloadCall) -> tuple[TensorSpec, ...] | str:
    import torch

    reference = getattr(workload, "reference", None)
    if reference is None:
        return "the case has no reference"

    def run() -> Any:
        specs = [call.tensors.get(name) for name in call.signature]
        made = [spec and torch.empty(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in specs]
        returned = reference(*made)
        return () if returned is None else returned

    found = _run(run, "the reference", "returns")
    if isinstance(found, str):
        return found
    specs = tuple(spec for spec in found if spec is not None)
    return specs if len(specs) == len(found) else "the reference returns NoneType, which is no tensor"


def _run(function: Callable[[], Any], what: str, gives: str) -> tuple[TensorSpec | None, ...] | str:
    """Give the structure of what ``function`` makes of tensors without values, or the reason why it is not known."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        # A workload may hold real tensors that its reference reads; only those made here are fake.
        with FakeTensorMode(allow_non_fake_inputs=True):
            made = function()
    except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is the reason it did not run
        return f"{what} does not run on tensors without values: {in_short(error)}"
    values = made if isinstance(made, tuple | list) else (made,)
    for value in values:
        if value is not None and not isinstance(value, torch.Tensor):
            return f"{what} {gives} {type(value).__name__}, which is no tensor"
    return tuple(
        None if v is None else TensorSpec(tuple(v.shape), str(v.dtype).removeprefix("torch.")) for v in values
    )


def check_workloads(manifest: Manifest, workloads: Workloads) -> LevelResult:
    """Level ``workload``: each call has a workload that can be built, and whose inputs are those declared."""

    def judge(row: WorkloadRow, call: WorkloadCall) -> Iterator[Finding]:
        built = workloads.of(row, call)
        where = f"{row.place}: {call.id}"
        if built.wrong is not None:
            yield built.wrong
        elif isinstance(built.inputs, str):
            yield Finding(where, f"inputs not checked: {built.inputs}", is_note=True)
        elif problem := input_problem(call, built.inputs):
            yield Finding(where, problem)

    return _check(Level.WORKLOAD, manifest, judge)


def check_shapes(manifest: Manifest, workloads: Workloads) -> LevelResult:
    """Level ``shape``: rows' shapes and rooflines have values; outputs are shaped as the reference's are."""

    def judge(row: WorkloadRow, call: WorkloadCall) -> Iterator[Finding]:
        try:
            call.roofline()
        except ManifestError as error:
            yield Finding.of(error)
        except UnavailableError as error:
            where = f"{call.declared_roofline.place}: {call.id}"
            yield Finding(where, f"work not counted: {error}", is_note=True)
        yield from _outputs_differ(row, call, workloads, lambda spec: list(spec.shape))

    return _check(Level.SHAPE, manifest, judge)


def check_dtypes(manifest: Manifest, workloads: Workloads) -> LevelResult:
    """Level ``dtype``: rows ask for dtypes that the op takes, and outputs have those of the reference's."""
    return _check(
        Level.DTYPE,
        manifest,
        lambda row, call: _outputs_differ(row, call, workloads, lambda spec: spec.dtype),
    )


def _check(
    level: Level, manifest: Manifest, judge: Callable[[WorkloadRow, WorkloadCall], Iterator[Finding]]
) -> LevelResult:
    """Judge each call; what is found at the same place again, as an op without an entry is, is one finding."""
    findings: list[Finding] = []
    checked = 0
    for spec, row, case in ((s, row, case) for s in manifest.ops.values() for row, case in s.cases()):
        problems = spec.dtype_problems(row, case) if level is Level.DTYPE else []
        try:
            found = [*map(Finding.of, problems)] or [*judge(row, spec.instantiate(row, case))]
        except ManifestError as error:
            if level is Level.WORKLOAD:
                continue  # the shape level tells it
            found = [Finding.of(error)]
        checked += not found
        findings += found
    return LevelResult(level, checked, "calls", tuple(dict.fromkeys(findings)))


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


def _outputs_differ(
    row: WorkloadRow,
    call: WorkloadCall,
    workloads: Workloads,
    part: Callable[[TensorSpec], object],
) -> Iterator[Finding]:
    """Compare a part of the declared outputs with the reference's."""
    where = f"{row.place}: {call.id}"
    got = workloads.of(row, call).outputs
    if isinstance(got, str):
        yield Finding(where, f"outputs not checked: {got}", is_note=True)
    elif len(got) != len(call.outputs):
        said = f"{len(call.outputs)} output(s) declared, the reference gives {len(got)}"
        yield Finding(where, said)
    else:
        pairs = zip(call.outputs.items(), got, strict=True)
        differences = [
            f"output {name!r} is {part(declared)} here, {part(found)} from the reference"
            for (name, declared), found in pairs
            if part(declared) != part(found)
        ]
        if differences:
            yield Finding(where, "; ".join(differences))
