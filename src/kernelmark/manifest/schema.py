"""The fields of a manifest file and their types; every wrong one is an error with file, line and field.

Owns what can be said of one field at a time. What needs two fields (a dimension that no row binds, a label
used twice) is :mod:`kernelmark.manifest.declare`'s.
"""

from __future__ import annotations

import keyword
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, ValidationError, model_validator

from kernelmark.errors import ManifestError
from kernelmark.files.source import Source, kind_of
from kernelmark.files.strict import StrictModel, hint, problem, problems_of
from kernelmark.manifest.dtypes import DTYPE_BYTES, unknown_dtype

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
        raise problem(
            f"{value!r} cannot be a name; use letters, digits and _, no digit first, no Python keyword"
        )
    return value


def _label(value: str) -> str:
    if not _LABEL.match(value):
        raise problem(
            f"{value!r} cannot be part of a test id;"
            " use letters, digits, '.', '_' and '-', such as llama3-8b-prefill"
        )
    return value


def _function(value: str) -> str:
    if not _FUNCTION.match(value):
        raise problem(
            f"{value!r} names no function; write 'module:function', such as 'tileops.perf.gemm:bmm'"
        )
    return value


def _dtype(value: str) -> str:
    if value not in DTYPE_BYTES:
        raise problem(f"{value!r} is no dtype; {unknown_dtype(value)}")
    return value


def _text(value: str) -> str:
    if not value.strip():
        raise problem("blank; write what a reader should know")
    return value.strip()


def _scalar(value: Any) -> int | float | bool | str:
    if not isinstance(value, int | float | bool | str):
        raise problem(f"expected a number, text or bool, got {kind_of(value)}{hint(value, 'scalar')}")
    return value


def _formula(value: Any) -> int | float | str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise problem(f"expected a number or an expression, got {kind_of(value)}{hint(value, 'formula')}")
    return value


Name = Annotated[str, AfterValidator(_name)]
Label = Annotated[str, AfterValidator(_label)]
Text = Annotated[str, AfterValidator(_text)]
Dtype = Annotated[str, AfterValidator(_dtype)]
Scalar = Annotated[int | float | bool | str, PlainValidator(_scalar)]
Formula = Annotated[int | float | str, PlainValidator(_formula)]
Size = Annotated[int, Field(ge=0)]


class _TensorModel(StrictModel):
    dtype: Name
    shape: list[Formula]


class InputModel(_TensorModel):
    """One input tensor."""

    optional: bool = False


class OutputModel(_TensorModel):
    """One output tensor."""


class ParamModel(StrictModel):
    """One parameter; without a default each row must give it."""

    type: Literal["int", "float", "bool", "str"]
    default: Scalar | None = None
    choices: list[Scalar] | None = Field(default=None, min_length=1)


class EffectsModel(StrictModel):
    """What a call does besides returning its outputs."""

    mutates: list[Name] = Field(default_factory=list)
    writes: list[Name] = Field(default_factory=list)
    aliases: dict[Name, Name] = Field(default_factory=dict)


class RooflineModel(StrictModel):
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
                raise problem(
                    f"'function' and {' and '.join(map(repr, formulas))}; write one form or the other"
                )
        elif missing := [name for name in ("flops", "bytes", "compute") if name not in self.model_fields_set]:
            raise problem(
                f"{' and '.join(map(repr, missing))} missing; write flops, bytes and compute, or 'function'"
            )
        return self


class WorkloadModel(StrictModel):
    """One call of the op, as a real model makes it."""

    label: Label
    source: Text
    dims: dict[Name, Size] = Field(default_factory=dict)
    dtypes: list[dict[Name, Dtype]] = Field(default_factory=lambda: [{}], min_length=1)
    params: dict[Name, Scalar] = Field(default_factory=dict)
    given: list[Name] = Field(default_factory=list, alias="with")


class OpModel(StrictModel):
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


class FamilyModel(StrictModel):
    """One manifest file."""

    family: Name
    ops: dict[Name, OpModel] = Field(min_length=1)


def read_schema(source: Source) -> tuple[FamilyModel | None, list[ManifestError]]:
    """Check a file's fields; give the family, or all that is wrong with it in the order of the file."""
    try:
        return FamilyModel.model_validate(source.value), []
    except ValidationError as error:
        return None, problems_of(source, error)
