"""The fields of a manifest file and their types; every wrong one is an error with file, line and field.

Owns what can be said of one field at a time. What needs two fields (a dimension that no row binds, a label
used twice) is :mod:`kernelmark.manifest.declare`'s.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from kernelmark.errors import ManifestError
from kernelmark.manifest.dtypes import DTYPE_BYTES, unknown_dtype
from kernelmark.manifest.near import suggestion
from kernelmark.manifest.source import Source, kind_of

__all__ = [
    "EffectsModel",
    "FamilyModel",
    "InputModel",
    "OpModel",
    "OutputModel",
    "ParamModel",
    "RooflineModel",
    "WorkloadModel",
    "read_schema",
]

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z", re.ASCII)


def _name(value: str) -> str:
    if not (value.isascii() and value.isidentifier()) or keyword.iskeyword(value):
        raise _problem(
            f"{value!r} cannot be a name; use letters, digits and _, no digit first, no Python keyword"
        )
    return value


def _label(value: str) -> str:
    if not _LABEL.match(value):
        raise _problem(
            f"{value!r} cannot be part of a test id;"
            " use letters, digits, '.', '_' and '-', such as llama3-8b-prefill"
        )
    return value


def _function(value: str) -> str:
    if not _FUNCTION.match(value):
        raise _problem(
            f"{value!r} names no function; write 'module:function', such as 'tileops.perf.gemm:bmm'"
        )
    return value


def _dtype(value: str) -> str:
    if value not in DTYPE_BYTES:
        raise _problem(f"{value!r} is no dtype; {unknown_dtype(value)}")
    return value


def _text(value: str) -> str:
    if not value.strip():
        raise _problem("blank; write what a reader should know")
    return value.strip()


def _scalar(value: Any) -> int | float | bool | str:
    if not isinstance(value, int | float | bool | str):
        raise _problem(f"expected a number, text or bool, got {kind_of(value)}{_hint(value, 'scalar')}")
    return value


def _formula(value: Any) -> int | float | str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _problem(f"expected a number or an expression, got {kind_of(value)}{_hint(value, 'formula')}")
    return value


def _problem(message: str) -> PydanticCustomError:
    # Braces would be read as places to fill in.
    return PydanticCustomError("manifest", "{message}", {"message": message})


Name = Annotated[str, AfterValidator(_name)]
Label = Annotated[str, AfterValidator(_label)]
Text = Annotated[str, AfterValidator(_text)]
Dtype = Annotated[str, AfterValidator(_dtype)]
Scalar = Annotated[int | float | bool | str, PlainValidator(_scalar)]
Formula = Annotated[int | float | str, PlainValidator(_formula)]
Size = Annotated[int, Field(ge=0)]


class _Model(BaseModel):
    """Strict, frozen, and closed: an unknown field is answered with the fields there are."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _knows_its_fields(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = [info.alias or name for name, info in cls.model_fields.items()]
            for key, value in data.items():
                if key == "<<":
                    message = "merge keys are not read; repeat the fields, or alias a whole value"
                elif key not in known:
                    message = f"unknown field {key!r}; {suggestion(key, known, there_are='fields here')}"
                elif value is None:
                    message = (
                        "nothing stands here; give a value ([] or {} if it is empty), or leave the field out"
                    )
                else:
                    continue
                raise PydanticCustomError("at_key", "{message}", {"message": message, "key": key})
        return data


class _TensorModel(_Model):
    dtype: Name
    shape: list[Formula]


class InputModel(_TensorModel):
    """One input tensor."""

    optional: bool = False


class OutputModel(_TensorModel):
    """One output tensor."""


class ParamModel(_Model):
    """One parameter; without a default each row must give it."""

    type: Literal["int", "float", "bool", "str"]
    default: Scalar | None = None
    choices: list[Scalar] | None = Field(default=None, min_length=1)


class EffectsModel(_Model):
    """What a call does besides returning its outputs."""

    mutates: list[Name] = Field(default_factory=list)
    writes: list[Name] = Field(default_factory=list)
    aliases: dict[Name, Name] = Field(default_factory=dict)


class RooflineModel(_Model):
    """Operations and bytes of a call: two formulas, or a function."""

    flops: Formula | None = None
    bytes: Formula | None = None
    compute: Name | None = None
    function: Annotated[str, AfterValidator(_function)] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> RooflineModel:
        formulas = [name for name in ("flops", "bytes") if name in self.model_fields_set]
        if "function" in self.model_fields_set:
            if formulas:
                raise _problem(
                    f"'function' and {' and '.join(map(repr, formulas))}; write one form or the other"
                )
        elif missing := [name for name in ("flops", "bytes", "compute") if name not in self.model_fields_set]:
            raise _problem(
                f"{' and '.join(map(repr, missing))} missing; write flops, bytes and compute, or 'function'"
            )
        return self


class WorkloadModel(_Model):
    """One call of the op, as a real model makes it."""

    label: Label
    source: Text
    dims: dict[Name, Size] = Field(default_factory=dict)
    dtypes: list[dict[Name, Dtype]] = Field(default_factory=lambda: [{}], min_length=1)
    params: dict[Name, Scalar] = Field(default_factory=dict)
    given: list[Name] = Field(default_factory=list, alias="with")


class OpModel(_Model):
    """One op: its signature, its effects, its roofline, its workloads."""

    summary: Text
    dtypes: dict[Name, Annotated[list[Dtype], Field(min_length=1)]] = Field(default_factory=dict)
    inputs: dict[Name, InputModel] = Field(min_length=1)
    outputs: dict[Name, OutputModel]
    params: dict[Name, ParamModel] = Field(default_factory=dict)
    effects: EffectsModel = Field(default_factory=EffectsModel)
    arguments: dict[Name, Scalar]
    roofline: RooflineModel
    workloads: list[WorkloadModel] = Field(min_length=1)


class FamilyModel(_Model):
    """One manifest file."""

    family: Name
    ops: dict[Name, OpModel] = Field(min_length=1)


def read_schema(source: Source) -> tuple[FamilyModel | None, list[ManifestError]]:
    """Check a file's fields; give the family, or all that is wrong with it in the order of the file."""
    try:
        return FamilyModel.model_validate(source.value), []
    except ValidationError as error:
        found = [_explain(source, details) for details in error.errors(include_url=False)]
        return None, sorted(_once(found), key=lambda problem: problem.line or 0)


def _once(problems: list[ManifestError]) -> Iterator[ManifestError]:
    seen: set[str] = set()
    for problem in problems:
        if str(problem) not in seen:
            seen.add(str(problem))
            yield problem


def _explain(source: Source, details: ErrorDetails) -> ManifestError:
    loc = tuple(part for part in details["loc"] if part != "[key]")
    kind, value = details["type"], details["input"]
    if kind == "at_key":
        loc = (*loc, details.get("ctx", {})["key"])
    elif kind == "missing":
        return source.error(f"required field {loc[-1]!r} is missing", *loc[:-1])
    say = _MESSAGES.get(kind)
    return source.error(say(value, details) if say else details["msg"], *loc)


def _wanted(what: str, kind: str) -> Callable[[Any, ErrorDetails], str]:
    return lambda value, _details: f"expected {what}, got {kind_of(value)}{_hint(value, kind)}"


def _hint(value: Any, wanted: str) -> str:
    """Say what to write, where YAML's own reading of a value is the likely cause."""
    if value is None:
        return "; leave the field out if it has no value"
    if isinstance(value, bool) and wanted in ("str", "formula"):
        word = "true" if value else "false"
        return f'; quote it if the word is meant: "{word}"'
    if isinstance(value, int | float) and wanted == "str":
        return f'; quote it if text is meant: "{value}"'
    if isinstance(value, str):
        if wanted == "bool" and value.lower() in ("yes", "no", "on", "off", "true", "false", "y", "n"):
            return f"; {value} is text in a manifest: write true or false, unquoted"
        if wanted in ("int", "float"):
            return f" {value!r}; write plain digits, unquoted"
        return f" {value!r}"
    return ""


_MESSAGES: dict[str, Callable[[Any, ErrorDetails], str]] = {
    "string_type": _wanted("text", "str"),
    "int_type": _wanted("an int", "int"),
    "int_from_float": _wanted("an int", "int"),
    "float_type": _wanted("a float", "float"),
    "bool_type": _wanted("true or false", "bool"),
    "dict_type": _wanted("a mapping", "dict"),
    "model_type": _wanted("a mapping", "dict"),
    "list_type": _wanted("a list", "list"),
    "too_short": lambda _value, _details: "empty; give at least one",
    "greater_than_equal": lambda value, _details: f"{value} is negative; a dimension is 0 or more",
    "literal_error": lambda value, details: (
        f"{value!r} is not one of {details.get('ctx', {}).get('expected')}"
    ),
}
