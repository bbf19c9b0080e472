"""What every checked YAML file shares: closed pydantic models, and their errors with file, line and field.

Owns the words of "this field is wrong". Which fields there are is said by the models built on it
(:mod:`kernelmark.manifest.schema` and others).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from kernelmark.files.source import Source, kind_of
from kernelmark.text import suggestion

__all__ = ["StrictModel", "hint", "problem", "problems_of"]


def problem(message: str) -> PydanticCustomError:
    """Give the error that a validator raises to say ``message`` of its field."""
    # Braces would be read as places to fill in.
    return PydanticCustomError("field", "{message}", {"message": message})


class StrictModel(BaseModel):
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


def problems_of(source: Source, error: ValidationError) -> list[Any]:
    """Give all that ``error`` says of ``source``, each thing once, in the order of the file.

    The errors are of the class that the kind of ``source`` names.
    """
    found = [_explain(source, details) for details in error.errors(include_url=False)]
    return sorted({str(each): each for each in found}.values(), key=lambda each: each.line or 0)


def hint(value: Any, wanted: str) -> str:
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
            return f"; {value} is text here: write true or false, unquoted"
        if wanted in ("int", "float"):
            return f" {value!r}; write plain digits, unquoted"
        return f" {value!r}"
    return ""


def _explain(source: Source, details: ErrorDetails) -> Any:
    loc = tuple(part for part in details["loc"] if part != "[key]")
    kind, value = details["type"], details["input"]
    if kind == "at_key":
        loc = (*loc, details.get("ctx", {})["key"])
    elif kind == "missing":
        return source.error(f"required field {loc[-1]!r} is missing", *loc[:-1])
    say = _MESSAGES.get(kind)
    return source.error(say(value, details) if say else details["msg"], *loc)


def _wanted(what: str, kind: str) -> Callable[[Any, ErrorDetails], str]:
    return lambda value, _details: f"expected {what}, got {kind_of(value)}{hint(value, kind)}"


_MESSAGES: dict[str, Callable[[Any, ErrorDetails], str]] = {
    "string_type": _wanted("text", "str"),
    **dict.fromkeys(("int_type", "int_from_float"), _wanted("an int", "int")),
    "float_type": _wanted("a float", "float"),
    "bool_type": _wanted("true or false", "bool"),
    **dict.fromkeys(("dict_type", "model_type"), _wanted("a mapping", "dict")),
    "list_type": _wanted("a list", "list"),
    "too_short": lambda _value, _details: "empty; give at least one",
    "greater_than_equal": lambda value, _details: f"{value} is negative; give 0 or more",
    "literal_error": lambda value, details: (
        f"{value!r} is not one of {details.get('ctx', {}).get('expected')}"
    ),
}
