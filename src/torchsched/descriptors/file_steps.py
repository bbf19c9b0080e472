"""The steps of one file, its names filled in; what it includes is the loader's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelmark.files.source import Place, Source
from kernelmark.text import suggestion
from torchsched.descriptors.conditions import Condition, parse_condition
from torchsched.descriptors.functions import check_call, find_function
from torchsched.descriptors.parameters import Value, fill_in, fill_in_text, names_in, no_such
from torchsched.descriptors.passes import plain_lists, with_options
from torchsched.descriptors.schema import StepModel
from torchsched.descriptors.steps import Origin, PassStep, Step, TransformFileStep, TransformStep

__all__ = ["FileSteps", "through"]


def through(error: Exception, chain: tuple[Place, ...]) -> Exception:
    """Give ``error`` with the includes that led to its place, the innermost first."""
    for place in reversed(chain):
        error.args = (f"{error.args[0]}\n  included from {place.path}:{place.line}", *error.args[1:])
    return error


@dataclass(frozen=True, slots=True)
class FileSteps:
    """One file, and the values of the names that it may use."""

    path: Path
    source: Source
    chain: tuple[Place, ...]
    """The include steps that led to it, the outermost first."""
    values: Mapping[str, Value]
    outer: tuple[Condition, ...] = ()
    """The conditions of those include steps."""

    def of(self, model: StepModel, index: int) -> list[Step]:
        """Give the steps of one entry of the pipeline that is no include.

        Raises:
            ScheduleError: a name without a value, a function or file that is not there, an option it does not take.
        """
        kind = model.kind
        when = self.conditions(model)
        options = self.options(model, index)
        origin = self._origin("pipeline", index, kind)
        if kind == "bundle":
            return [
                PassStep(self._pass(text, origin), self._origin("pipeline", index, kind, number), when)
                for number, text in enumerate(model.bundle or ())
            ]
        if kind == "pass":
            text = with_options(self._pass(str(model.pass_), origin), options)
            return [PassStep(text, origin, when)]
        if str(model.transform).endswith(".mlir"):
            return [self._transform_file(str(model.transform), options, origin, when)]
        return [self._transform(str(model.transform), options, origin, when)]

    def conditions(self, model: StepModel) -> tuple[Condition, ...]:
        """Give what must hold for a step: its own condition, and those of the includes that led here."""
        return (*self.outer, parse_condition(model.when)) if model.when else self.outer

    def options(self, model: StepModel, index: int) -> dict[str, Value]:
        """Give a step's options, filled in."""
        return {
            name: fill_in(value, self.values, self._unknown("pipeline", index, "options", name))
            for name, value in (model.options or {}).items()
        }

    def error(self, message: str, *loc: object) -> Exception:
        """Give the error that says ``message`` of the field at ``loc``, with the chain of includes."""
        return through(self.source.error(message, *loc), self.chain)

    def _origin(self, *loc: object) -> Origin:
        return Origin(self.source.place(loc), self.chain)

    def _unknown(self, *loc: object) -> Callable[[str], Exception]:
        return lambda name: self.error(no_such(name, self.values), *loc)

    def _pass(self, text: str, origin: Origin) -> str:
        def unknown(name: str) -> Exception:
            return through(origin.place.error(no_such(name, self.values)), self.chain)

        return plain_lists(fill_in_text(text, self.values, unknown))

    def _transform(
        self, text: str, options: dict[str, Value], origin: Origin, when: tuple[Condition, ...]
    ) -> TransformStep:
        where, _, name = text.rpartition(":")
        if where.endswith(".py"):
            text = f"{(self.path.parent / where).resolve()}:{name}"
        try:
            check_call(text, find_function(text), options)
        except ValueError as error:
            raise through(origin.place.error(str(error)), self.chain) from None
        return TransformStep(text, options, origin, when)

    def _transform_file(
        self, text: str, options: dict[str, Value], origin: Origin, when: tuple[Condition, ...]
    ) -> TransformFileStep:
        path = self.path.parent / text
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise through(origin.place.error(f"cannot read {path}: {reason}"), self.chain) from None
        wanted = names_in(content)
        known = {**self.values, **options}
        for name, line in wanted:
            if name not in known:
                hint = suggestion(name, known, there_are="options and parameters here")
                message = f"{path}:{line} has ${{{name}}}, which nothing gives a value; {hint}"
                raise through(origin.place.error(message), self.chain)
        names = {name for name, _ in wanted}
        for name in options:
            if name not in names:
                hint = suggestion(name, names, there_are="names there")
                raise through(origin.place.error(f"{path} has no ${{{name}}}; {hint}"), self.chain)
        return TransformFileStep(path, {name: known[name] for name in sorted(names)}, origin, when)
