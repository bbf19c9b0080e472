"""The fields of a schedule's file and their types; every wrong one is an error with file, line and field.

Owns what can be said of one file at a time. Includes, parameters in force and MLIR's own names are others'.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator, ValidationError, field_validator, model_validator

from kernelmark.errors import ScheduleError
from kernelmark.files.source import FileKind, Source, kind_of, read_source
from kernelmark.files.strict import StrictModel, problem, problems_of
from torchsched.descriptors.conditions import parse_condition

__all__ = [
    "BUILT_IN",
    "SHIPPED",
    "SHIPPED_PREFIX",
    "THREADS",
    "DescriptorModel",
    "ParameterModel",
    "StepModel",
    "read_descriptor",
]

SCHEDULE = FileKind("a schedule", "'pipeline', a list of steps", ScheduleError)

BUILT_IN = ("threads", "vector_bits")
"""Names that every descriptor may use without declaring them; the target says their values."""

THREADS = "threads"
"""The one of them that may be declared as well: how many of the target's threads the code uses, 0 for all."""

SHIPPED = Path(__file__).resolve().parents[1] / "schedules"
"""The root of the schedules that come with this package."""

SHIPPED_PREFIX = "shipped:"
"""Begins an include's path that goes from the root of the schedules that come with this package."""

_NAME = re.compile(r"[a-z_][a-z0-9_]*\Z")
_KINDS = ("include", "transform", "pass", "bundle")
_TRANSFORM = re.compile(r"[\w./-]+(?:\.py)?:[A-Za-z_]\w*\Z|[\w./-]+\.mlir\Z", re.ASCII)


def _name(value: str) -> str:
    if not _NAME.match(value):
        raise problem(
            f"{value!r} cannot be a parameter's name; use small letters, digits and _, no digit first"
        )
    if value in BUILT_IN and value != THREADS:
        raise problem(f"{value!r} is the target's to say and needs no declaration; choose another name")
    return value


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(each) for each in value]
    if not isinstance(value, int | float | bool | str):
        raise problem(f"expected a number, text, true, false, or a list of them, got {kind_of(value)}")
    return value


def _text(value: str) -> str:
    if not value.strip():
        raise problem("blank; write what a reader should know, or leave the field out")
    return " ".join(value.split())


def _pass(value: str) -> str:
    if not value.strip():
        raise problem("blank; name a pass, such as canonicalize")
    return value.strip()


def _transform(value: str) -> str:
    if not _TRANSFORM.match(value):
        raise problem(
            f"{value!r} names no transform; write 'module:function', 'file.py:function', or 'file.mlir'"
        )
    return value


def _when(value: str) -> str:
    try:
        parse_condition(value)
    except ValueError as error:
        raise problem(str(error)) from None
    return value


Name = Annotated[str, AfterValidator(_name)]
Text = Annotated[str, AfterValidator(_text)]
Value = Annotated[Any, PlainValidator(_value)]
Pass = Annotated[str, AfterValidator(_pass)]


class ParameterModel(StrictModel):
    """One parameter: its value where none is given, and what may be given."""

    default: Value
    choices: list[Value] | None = Field(default=None, min_length=1)
    description: Text | None = None

    @model_validator(mode="after")
    def _default_is_a_choice(self) -> ParameterModel:
        if self.choices is not None:
            kinds = {type(each) for each in (*self.choices, self.default)}
            if len(kinds) > 1:
                raise problem(f"choices {self.choices} and default {self.default!r} are not all of one kind")
            if self.default not in self.choices:
                raise problem(f"the default {self.default!r} is none of the choices {self.choices}")
        return self

    @property
    def values(self) -> list[Any]:
        """Every value that stands in it."""
        return [self.default, *(self.choices or ())]


class StepModel(StrictModel):
    """One step: one of include, transform, pass and bundle."""

    include: str | None = None
    transform: Annotated[str, AfterValidator(_transform)] | None = None
    pass_: Pass | None = Field(default=None, alias="pass")
    bundle: list[Pass] | None = Field(default=None, min_length=1)
    options: dict[Annotated[str, Field(min_length=1)], Value] | None = None
    when: Annotated[str, AfterValidator(_when)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_a_mapping(cls, data: Any) -> Any:
        if isinstance(data, str):
            raise problem(f"expected a mapping, got text {data!r}; for a pass write '- pass: {data}'")
        return data

    @model_validator(mode="after")
    def _one_kind(self) -> StepModel:
        given = [kind for kind in _KINDS if self._given(kind)]
        if len(given) != 1:
            found = " and ".join(repr(kind) for kind in given) or "none of them"
            raise problem(f"a step is one of {', '.join(_KINDS)}; found {found}")
        if self.options is not None and given == ["bundle"]:
            raise problem("a bundle takes no options; write them behind its passes: name{key=value}")
        if self.options is not None and self.pass_ is not None and not re.fullmatch(r"[\w-]+", self.pass_):
            raise problem(
                "options stand either behind the pass's name or under 'options', and there only with a bare name"
            )
        return self

    @property
    def kind(self) -> str:
        """Which of the four it is."""
        return next(kind for kind in _KINDS if self._given(kind))

    def _given(self, kind: str) -> bool:
        return getattr(self, "pass_" if kind == "pass" else kind) is not None


class DescriptorModel(StrictModel):
    """One file of a schedule."""

    description: Text | None = None
    part: bool = False
    """Whether it is there to be included, and no schedule by itself."""
    parameters: dict[Name, ParameterModel] = Field(default_factory=dict)
    pipeline: list[StepModel] = Field(min_length=1)
    provenance: dict[str, Any] | None = Field(default=None, min_length=1)
    """Where the values come from, such as a search; kept for readers, and read by nothing here."""

    @field_validator("parameters")
    @classmethod
    def _threads_can_be_counted(cls, parameters: dict[str, ParameterModel]) -> dict[str, ParameterModel]:
        for value in parameters[THREADS].values if THREADS in parameters else ():
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise problem(f"{THREADS}: {value!r} is no number of threads; 0 means all of the target's")
        return parameters


def read_descriptor(path: Path) -> tuple[Source, DescriptorModel]:
    """Read one file, without what it includes.

    Raises:
        ScheduleError: it cannot be read, or a field is wrong; the text lists every one that is.
    """
    # A compilation includes eight of this package's own, and they stay as they are.
    return _read_shipped(path) if path.is_relative_to(SHIPPED) else _read(path)


def _read(path: Path) -> tuple[Source, DescriptorModel]:
    source = read_source(path, kind=SCHEDULE)
    try:
        return source, DescriptorModel.model_validate(source.value)
    except ValidationError as error:
        first, *others = problems_of(source, error)
        message = "\n".join([first.message, *map(str, others)])
        raise ScheduleError(message, path=first.path, line=first.line, field=first.field) from None


_read_shipped = cache(_read)
