"""The parameters that a descriptor declares: their values, what may be given instead, and ``$name`` in its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelmark.errors import FileError
from kernelmark.files.source import Place, kind_of, parse_source
from kernelmark.text import listing, suggestion

__all__ = ["Parameter", "Value", "fill_in", "fill_in_text", "names_in", "written"]

Value = int | float | bool | str | tuple["Value", ...]
"""What a parameter or an option can be; a list in YAML is a tuple here."""

_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_BRACED = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a schedule, with the value in force."""

    name: str
    value: Value
    default: Value
    choices: tuple[Value, ...]
    """What may be given; empty where every value of the default's kind may."""
    description: str
    place: Place

    def with_value(self, given: object) -> Parameter:
        """Give the parameter with ``given``, which may be text where the default is none.

        Raises:
            ScheduleError: it is of another kind than the default, or none of the choices.
        """
        value = self._read(given)
        if self.choices and not any(_same(value, choice) for choice in self.choices):
            choices = listing(written(choice) for choice in self.choices)
            raise self.place.error(f"{self.name}={written(value)} is none of the choices: {choices}")
        return Parameter(self.name, value, self.default, self.choices, self.description, self.place)

    def _read(self, given: object) -> Value:
        value = given
        if isinstance(given, str) and not isinstance(self.default, str):
            try:
                value = parse_source(f"value: {given}", "value").value["value"]
            except FileError:
                value = given
            if isinstance(self.default, tuple) and not isinstance(value, list) and "," in given:
                value = [_scalar(part) for part in given.split(",")]
        value = frozen(value)
        if isinstance(self.default, float) and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not type(self.default):
            raise self.place.error(
                f"{self.name}={given}: expected {kind_of(_thawed(self.default))} such as"
                f" {written(self.default)}, got {kind_of(_thawed(value))}"
            )
        return value


def frozen(value: Any) -> Any:
    """Give a value of YAML with its lists as tuples."""
    return tuple(frozen(each) for each in value) if isinstance(value, list | tuple) else value


def written(value: object) -> str:
    """Write a value as pass options and messages have it: ``true``, ``8``, ``1,8``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(written(each) for each in value)
    return str(value)


def fill_in(value: Any, values: Mapping[str, Value], unknown: Callable[[str], Exception]) -> Value:
    """Put values in place of ``$name`` in an option; an option that is nothing else keeps the value's type.

    Raises:
        Exception: what ``unknown`` gives for a name that has no value.
    """
    if isinstance(value, list | tuple):
        return tuple(fill_in(each, values, unknown) for each in value)
    if not isinstance(value, str):
        return value
    whole = _REFERENCE.fullmatch(value)
    if whole is not None:
        return _value(whole, values, unknown)
    return fill_in_text(value, values, unknown)


def fill_in_text(
    text: str,
    values: Mapping[str, Value],
    unknown: Callable[[str], Exception],
    *,
    braced: bool = False,
) -> str:
    """Put values in place of each ``$name`` and ``${name}`` in ``text``; ``braced`` leaves ``$name`` alone.

    Raises:
        Exception: what ``unknown`` gives for a name that has no value.
    """
    pattern = _BRACED if braced else _REFERENCE
    return pattern.sub(lambda match: written(_value(match, values, unknown)), text)


def names_in(text: str) -> list[tuple[str, int]]:
    """List the names in ``${name}``, each with its line."""
    return [(match[1], text.count("\n", 0, match.start()) + 1) for match in _BRACED.finditer(text)]


def no_such(name: str, known: Mapping[str, object]) -> str:
    """Say that nothing declares ``name``."""
    hint = suggestion(name, known, there_are="parameters of this file")
    return f"${name} is not declared here; {hint}"


def _value(match: re.Match[str], values: Mapping[str, Value], unknown: Callable[[str], Exception]) -> Value:
    name = next(group for group in match.groups() if group is not None)
    if name not in values:
        raise unknown(name)
    return values[name]


def _scalar(text: str) -> Any:
    try:
        return parse_source(f"value: {text.strip()}", "value").value["value"]
    except FileError:
        return text.strip()


def _same(one: Value, other: Value) -> bool:
    return type(one) is type(other) and one == other


def _thawed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
