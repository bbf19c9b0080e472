"""The fields of a manifest file and their types; every wrong one is an error with file, line and field.

Owns what can be said of one field at a time. What needs two fields (a dimension that no row binds, a label
used twice) is :mod:`kernelmark.manifest.reading`'s.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, ValidationError, model_validator

from kernelmark.errors import ManifestError
from kernelmark.files.source import Source, kind_of
from kernelmark.files.strict import StrictModel, hint, problem, problems_of
from kernelmark.manifest.expressions import DTYPE_BYTES, unknown_dtype

__all__ = [
    "FamilyModel",
    "InputModel",
    "OpModel",
    "ParamModel",
    "TensorModel",
    "WorkloadModel",
    "read_schema",
]

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z", re.ASCII)


def _must(hold: Callable[[str], object], otherwise: str) -> AfterValidator:
    """Refuse the text that does not ``hold``, saying ``otherwise`` with the text in it."""

    def check(value: str) -> str:
        if not hold(value):
            raise problem(otherwise.format(value))
        return value.strip()

    return AfterValidator(check)


def _dtype(value: str) -> str:
    if value not in DTYPE_BYTES:
        raise problem(f"{value!r} is no dtype; {unknown_dtype(value)}")
    return value


def _plain(wanted: str, what: str, *, bools: bool) -> PlainValidator:
    """Take numbers and text, and bools where they are wanted."""

    def check(value: Any) -> int | float | bool | str:
        if not isinstance(value, int | float | str) or (isinstance(value, bool) and not bools):
            raise problem(f"expected {wanted}, got {kind_of(value)}{hint(value, what)}")
        return value

    return PlainValidator(check)


Name = Annotated[
    str,
    _must(
        lambda name: name.isascii() and name.isidentifier() and not keyword.iskeyword(name),
        "{!r} cannot be a name; use letters, digits and _, no digit first, no Python keyword",
    ),
]
Label = Annotated[
    str,
    _must(
        _LABEL.match,
        "{!r} cannot be part of a test id; use letters, digits, '.', '_' and '-', such as llama3-8b-prefill",
    ),
]
Function = Annotated[
    str,
    _must(
        _FUNCTION.match,
        "{!r} names no function; write 'module:function', such as 'tileops.perf.gemm:bmm'",
    ),
]
Dtype = Annotated[str, AfterValidator(_dtype)]
Text = Annotated[str, _must(str.strip, "blank; write what a reader should know")]
Scalar = Annotated[int | float | bool | str, _plain("a number, text or bool", "scalar", bools=True)]
Formula = Annotated[int | float | str, _plain("a number or an expression", "formula", bools=False)]
Size = Annotated[int, Field(ge=0)]


class TensorModel(StrictModel):
    """One output tensor, or what an input tensor has in common with it."""

    dtype: Name
    shape: list[Formula]


class InputModel(TensorModel):
    """One input tensor."""

    optional: bool = False


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
    function: Function | None = None

    @model_validator(mode="after")
    def _one_form(self) -> RooflineModel:
        given = self.model_fields_set
        formulas = " and ".join(repr(name) for name in ("flops", "bytes") if name in given)
        missing = " and ".join(repr(name) for name in ("flops", "bytes", "compute") if name not in given)
        if "function" in given and formulas:
            raise problem(f"'function' and {formulas}; write one form or the other")
        if "function" not in given and missing:
            raise problem(f"{missing} missing; write flops, bytes and compute, or 'function'")
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
    outputs: dict[Name, TensorModel]
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
