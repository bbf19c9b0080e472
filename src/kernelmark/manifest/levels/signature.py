"""Level ``signature``: the op classes are there, and take what the manifest says.

Looks at signatures only; no op is constructed and nothing is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from inspect import Parameter
from types import ModuleType

from kernelmark.errors import ConfigError
from kernelmark.manifest.levels import Finding, Level, LevelResult
from kernelmark.manifest.library import import_foreign
from kernelmark.manifest.op import Manifest, OpSpec
from kernelmark.text import listing, suggestion

__all__ = ["check_classes", "import_ops"]


def import_ops(name: str) -> ModuleType:
    """Import the module of op classes.

    Raises:
        ConfigError: there is no such module, or importing it raises.
        UnavailableError: it needs something that is not installed.
    """
    return import_foreign(name, lambda what: ConfigError(f"[tool.kernelmark] ops = {name!r}: {what}"))


def check_classes(manifest: Manifest, ops: ModuleType) -> LevelResult:
    """Compare every op with its class, and the module's classes with the manifest."""
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
