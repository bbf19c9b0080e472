"""The validator: what a library's manifest, classes, workloads and benchmark files say, held against each other.

Each level gives values; nothing here prints or decides an exit code. Those that need the manifest alone, or nothing of
the op classes but their signatures, are in this module: no op is constructed and nothing is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from inspect import Parameter
from pathlib import Path
from types import ModuleType

from kernelmark.errors import ConfigError, ManifestError
from kernelmark.manifest.library import import_foreign
from kernelmark.manifest.op import Manifest, OpSpec
from kernelmark.manifest.reading import read_manifest
from kernelmark.text import listing, suggestion

__all__ = ["Finding", "Level", "LevelResult", "check_classes", "check_files", "import_ops"]


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


def import_ops(name: str) -> ModuleType:
    """Import the module of op classes.

    Raises:
        ConfigError: there is no such module, or importing it raises.
        UnavailableError: it needs something that is not installed.
    """
    return import_foreign(name, lambda what: ConfigError(f"[tool.kernelmark] ops = {name!r}: {what}"))


def check_classes(manifest: Manifest, ops: ModuleType) -> LevelResult:
    """Level ``signature``: compare every op with its class, and the module's classes with the manifest."""
    findings = [
        Finding(f"{spec.place}{field}", message)
        for spec in manifest.ops.values()
        for field, message in _op(spec, ops)
    ]
    for name in _op_classes(ops):
        if name not in manifest.ops:
            message = f"class {name} is not in the manifest; declare it there, or let its name not end in Op"
            findings.append(Finding(ops.__name__, message))
    return LevelResult(Level.SIGNATURE, len(manifest.ops), "ops", tuple(findings))


def _op(spec: OpSpec, ops: ModuleType) -> Iterator[tuple[str, str]]:
    """Give what is wrong with one op: the field of the manifest, and what it is."""
    found = getattr(ops, spec.name, None)
    if not isinstance(found, type):
        hint = suggestion(spec.name, _op_classes(ops), there_are="op classes there")
        yield "", f"{ops.__name__} has no class {spec.name!r}; {hint}"
        return
    try:
        for message in _constructor(spec, found):
            yield ".arguments", message
        for message in _call(spec, found):
            yield ".inputs", message
    except ValueError as error:  # what inspect says of a class that is not written in Python
        yield "", f"{found.__name__} has no signature to compare: {error}"


def _constructor(spec: OpSpec, op: type) -> Iterator[str]:
    parameters = inspect.signature(op).parameters.values()
    takes = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for name in spec.arguments:
            if name not in takes:
                yield f"{op.__name__}() takes no {name!r}; {suggestion(name, takes, there_are='it takes')}"
    for parameter in filter(_is_needed, parameters):
        if parameter.kind is Parameter.POSITIONAL_ONLY:
            yield f"{op.__name__}() takes {parameter.name!r} by position only; arguments are passed by name"
        elif parameter.name not in spec.arguments:
            yield f"{op.__name__}() needs {parameter.name!r}, which 'arguments' does not give"


def _call(spec: OpSpec, op: type) -> Iterator[str]:
    """Compare the parameters of the call with the inputs: same names, same order."""
    if not any("__call__" in vars(base) for base in op.__mro__):
        yield f"{op.__name__}.__call__ is missing, so the op cannot be called"
        return
    method, parameters = "__call__", _parameters(op, "__call__")
    if _collects(parameters) and callable(getattr(op, "forward", None)):
        method, parameters = "forward", _parameters(op, "forward")  # to which __call__ passes *args on
    what = f"{op.__name__}.{method}"
    if _collects(parameters):
        yield f"{what} takes *args, so its inputs have no names to compare; write them out"
        return
    wanted = [decl.name for decl in spec.inputs]
    takes = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if takes != wanted:
        yield f"{what} takes ({listing(takes)}), the manifest says ({listing(wanted)})"
    for parameter in parameters:
        if parameter.kind is Parameter.KEYWORD_ONLY and _is_needed(parameter):
            yield f"{what} needs {parameter.name!r} by name; inputs are passed by position"


def _parameters(op: type, method: str) -> list[Parameter]:
    return list(inspect.signature(getattr(op, method)).parameters.values())[1:]  # after self


def _collects(parameters: list[Parameter]) -> bool:
    return any(p.kind is Parameter.VAR_POSITIONAL for p in parameters)


def _is_needed(parameter: Parameter) -> bool:
    collects = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and not collects


def _op_classes(ops: ModuleType) -> list[str]:
    """List the public concrete classes ending in Op that the module, or a module below it, defines."""
    return [
        name
        for name, value in ((each, getattr(ops, each)) for each in dir(ops) if each.endswith("Op"))
        if isinstance(value, type)
        and not (name.startswith("_") or name == "Op" or inspect.isabstract(value))
        and f"{value.__module__}.".startswith(f"{ops.__name__}.")
    ]
