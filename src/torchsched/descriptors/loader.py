"""Descriptors as a :class:`Schedule`: includes followed, parameters given their values.

It runs no step and asks MLIR nothing; whether MLIR knows a pass is :mod:`torchsched.descriptors.passes`'.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from kernelmark.errors import ScheduleError
from kernelmark.files.source import Place, Source
from kernelmark.text import suggestion
from torchsched.descriptors.conditions import Condition
from torchsched.descriptors.file_steps import FileSteps, through
from torchsched.descriptors.parameters import Parameter, Value, frozen
from torchsched.descriptors.schedule import Schedule
from torchsched.descriptors.schema import (
    BUILT_IN,
    SHIPPED,
    SHIPPED_PREFIX,
    THREADS,
    DescriptorModel,
    StepModel,
    read_descriptor,
)
from torchsched.descriptors.steps import Step
from torchsched.targets import Target

__all__ = ["SHIPPED", "load_schedule"]


def load_schedule(
    paths: Path | Sequence[Path],
    target: Target,
    *,
    values: Mapping[str, object] | None = None,
    name: str | None = None,
) -> Schedule:
    """Read one descriptor, or several that follow one another, and everything they include.

    Args:
        paths: The files.
        target: What the schedule is for.
        values: Parameters to set; text is read as the parameter's default would be.
        name: What the schedule is called; by default after its files.

    Raises:
        ScheduleError: something is wrong; the message has file and line, and the chain of includes.
    """
    files = (paths,) if isinstance(paths, Path) else tuple(paths)
    reading, models = _read(files, target, values)
    if reading.threads not in (None, target.threads):
        # what stands before the declaration is resolved for as many threads as what stands behind it
        reading, models = _read(files, replace(target, threads=reading.threads), values)
    return Schedule(
        name=name or " then ".join(path.stem for path in files),
        paths=files,
        target=reading.target,
        description="; then: ".join(model.description for model in models if model.description),
        parameters=tuple(reading.parameters.values()),
        written=tuple(reading.steps),
        provenance=MappingProxyType(
            {key: each for model in models for key, each in (model.provenance or {}).items()}
        ),
        threads=None if reading.target is target else target.threads,
    )


def _read(
    files: Sequence[Path], target: Target, values: Mapping[str, object] | None
) -> tuple[_Reading, list[DescriptorModel]]:
    reading = _Reading(target, dict(values or {}))
    models = [reading.file(path, _Scope()) for path in files]
    reading.require_all_declared()
    return reading, models


@dataclass(frozen=True, slots=True)
class _Scope:
    """What a file has from those that include it."""

    bound: Mapping[str, Value] = field(default_factory=dict)
    """The options of the include step that led here."""
    shared: Mapping[str, Value] = field(default_factory=dict)
    """The parameters of the files on the way; one that is declared again here is the same one."""
    chain: tuple[Place, ...] = ()
    """The include steps that led here, the outermost first."""
    files: tuple[Path, ...] = ()
    """The files on the way, to find a circle."""
    when: tuple[Condition, ...] = ()


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    target: Target
    given: dict[str, object]
    parameters: dict[str, Parameter] = field(default_factory=dict)
    """Those that can be set from outside."""
    steps: list[Step] = field(default_factory=list)
    threads: int | None = None
    """How many threads a declared ``threads`` leaves the target."""

    def file(self, path: Path, scope: _Scope) -> DescriptorModel:
        """Read one file and append its steps."""
        path = Path(os.path.normpath(path))
        try:
            source, model = read_descriptor(path)
            values = self._values(source, model, scope)
        except ScheduleError as error:
            raise through(error, scope.chain) from error.__cause__
        built_in = {name: getattr(self.target, name) for name in BUILT_IN}
        here = FileSteps(path, source, scope.chain, {**values, **built_in}, scope.when)
        for index, step in enumerate(model.pipeline):
            if step.kind == "include":
                self._include(step, index, here, scope, values)
            else:
                self.steps += here.of(step, index)
        return model

    def require_all_declared(self) -> None:
        """Refuse a value for a parameter that nothing declares."""
        for name in self.given:
            if name not in self.parameters:
                hint = suggestion(name, self.parameters, there_are="parameters of this schedule")
                raise ScheduleError(f"parameter {name!r} is not declared; {hint}")

    def _values(self, source: Source, model: DescriptorModel, scope: _Scope) -> dict[str, Value]:
        """Give the file's parameters their values: from its include step, from outside, or their defaults."""
        found = {}
        for name, declared in model.parameters.items():
            default, place = frozen(declared.default), source.place(("parameters", name))
            own = Parameter(
                name, default, default, frozen(declared.choices or ()), declared.description or "", place
            )
            if name in scope.bound:
                found[name] = own.with_value(scope.bound[name]).value
            elif name in scope.shared:
                found[name] = own.with_value(scope.shared[name]).value
            elif name in self.parameters:
                found[name] = own.with_value(self.parameters[name].value).value
            else:
                self.parameters[name] = own.with_value(self.given[name]) if name in self.given else own
                found[name] = self.parameters[name].value
        if (asked := found.get(THREADS)) is not None:
            self.threads = self._threads(asked, source.place(("parameters", THREADS)))
        return found

    def _threads(self, asked: Value, place: Place) -> int:
        if not isinstance(asked, int) or asked < 0:
            raise place.error(f"{THREADS}={asked}: give a number of threads, or 0 for all of the target's")
        return min(asked, self.target.threads) if asked else self.target.threads

    def _include(
        self, model: StepModel, index: int, here: FileSteps, scope: _Scope, values: Mapping[str, Value]
    ) -> None:
        at = ("pipeline", index, "include")
        path = _included(here.path, str(model.include))
        if not path.is_file():
            raise here.error(_no_file(path), *at)
        files = (*scope.files, here.path)
        if path in files:
            way = " -> ".join(str(each) for each in (*files[files.index(path) :], path))
            raise here.error(f"the includes go in a circle: {way}", *at)
        options = here.options(model, index)
        declared = read_descriptor(path)[1].parameters if options else {}
        for name in options:
            if name not in declared:
                hint = suggestion(name, declared, there_are="its parameters")
                raise here.error(
                    f"{path} has no parameter {name!r}; {hint}", "pipeline", index, "options", name
                )
        self.file(
            path,
            _Scope(
                bound=options,
                shared={**scope.shared, **values},
                chain=(*scope.chain, here.source.place(at)),
                files=files,
                when=here.conditions(model),
            ),
        )


def _included(path: Path, text: str) -> Path:
    if text.startswith(SHIPPED_PREFIX):
        return Path(os.path.normpath(SHIPPED / text.removeprefix(SHIPPED_PREFIX)))
    return Path(os.path.normpath(path.parent / text))


def _no_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}, so no file {path.name} in it"
    there = sorted(each.name for each in path.parent.iterdir() if each.suffix == ".yaml")
    return f"there is no file {path}; {suggestion(path.name, there, there_are='descriptors there')}"
