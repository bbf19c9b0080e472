"""What a search may choose from, in which order it is tried, and how what was found is written as a descriptor.

Numbers and names only; what a candidate is worth is found out elsewhere.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from kernelmark.errors import RecordError, ScheduleError, UsageError
from kernelmark.report import write_report
from kernelmark.text import listing, suggestion
from torchsched.descriptors import SHIPPED, Parameter, Schedule, Value, load_schedule
from torchsched.descriptors.parameters import written
from torchsched.descriptors.schema import SHIPPED_PREFIX, THREADS

__all__ = ["DEFAULT", "Axis", "Candidate", "Space", "make_space", "write_below", "write_descriptor"]

DEFAULT = "default"
"""What the candidate with the schedule's own values is called."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One parameter that is searched."""

    name: str
    values: tuple[Value, ...]
    """What is tried, the default among it."""
    default: Value


@dataclass(frozen=True, slots=True)
class Candidate:
    """One choice of values."""

    number: int
    """Its place in the order; 0 is the default."""
    values: Mapping[str, Value]
    """Of every parameter that is searched."""
    label: str
    """The values that differ from the default, in words."""


@dataclass(frozen=True, slots=True)
class Space:
    """All choices there are."""

    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """How many choices there are."""
        return math.prod(len(axis.values) for axis in self.axes)

    def candidates(self, count: int, *, seed: int) -> tuple[Candidate, ...]:
        """Give the first ``count`` candidates, no two alike, the default first.

        The others come in an order drawn with ``seed``. Asking for more does not change those that come first, and
        asking for as many as there are gives all of them.
        """
        default = 0
        for axis in self.axes:
            default = default * len(axis.values) + axis.values.index(axis.default)
        order = [default, *(index for index in _drawn(self.size, count, seed) if index != default)]
        return tuple(self._candidate(number, index) for number, index in enumerate(order[:count]))

    def _candidate(self, number: int, index: int) -> Candidate:
        values: dict[str, Value] = {}
        for axis in reversed(self.axes):
            index, place = divmod(index, len(axis.values))
            values[axis.name] = axis.values[place]
        found = [(axis, values[axis.name]) for axis in self.axes]
        changed = [f"{axis.name}={written(value)}" for axis, value in found if value != axis.default]
        return Candidate(number, {axis.name: value for axis, value in found}, " ".join(changed) or DEFAULT)


def make_space(
    schedule: Schedule, *, search: Mapping[str, str | None] | None = None, held: Sequence[str] = ()
) -> Space:
    """Find out what can be searched.

    Args:
        schedule: Its parameters, with the values that are the default of the search.
        search: The parameters to search, with the values to try as text, or ``None`` for all of its choices. Nothing
            searches every parameter that has choices.
        held: The parameters that stay as they are.

    Raises:
        ScheduleError: an unknown parameter, a value that is none of its choices, or nothing that can be searched.
        UsageError: a parameter is both searched and held.
    """
    parameters = {each.name: each for each in schedule.parameters}
    nothing = partial(ScheduleError, path=str(schedule.paths[0]), line=1)
    if not parameters:
        raise nothing(
            f"{schedule.name} declares no parameters, so there is nothing to search; declare some under 'parameters',"
            " or choose a pipeline that has some (--explain-schedule shows them)"
        )
    for name in search or ():
        if name not in parameters:
            hint = suggestion(name, parameters, there_are="parameters of this schedule")
            raise ScheduleError(f"--search {name}: parameter {name!r} is not declared; {hint}")
        if name in held:
            raise UsageError(f"--search {name}: --param holds it at one value; leave one of them out")
    granted = schedule.threads or schedule.target.threads
    asked = search or {name: None for name, each in parameters.items() if each.choices and name not in held}
    axes = [_axis(parameters[name], text, granted) for name, text in asked.items()]
    axes = [axis for axis in axes if len(axis.values) > 1]
    if not axes:
        free = [name for name, each in parameters.items() if not each.choices]
        why = [f"{listing(held)} held by --param"] if held else []
        why += [f"{listing(free)} without choices, whose values --search NAME=... names"] if free else []
        raise nothing(
            f"{schedule.name} has no parameter left with more than one value to try:"
            f" {'; '.join(why) or 'each has one choice'}"
        )
    return Space(tuple(axes))


def _axis(parameter: Parameter, text: str | None, granted: int) -> Axis:
    if text is not None:
        separator = ";" if isinstance(parameter.default, tuple) else ","
        words = [word.strip() for word in text.split(separator) if word.strip()]
        if not words:
            raise UsageError(f"--search {parameter.name}=: name the values to try, or leave '=' out")
        values = [parameter.with_value(word).value for word in words]
    elif parameter.choices:
        values = list(parameter.choices)
    else:
        raise parameter.place.error(
            f"{parameter.name} has no choices; name the values to try, as in --search {parameter.name}="
            f"{written(parameter.default)},..."
        )
    if parameter.name == THREADS:
        # All that the target has are 0, and more are not to be had: they would be the same candidate once more.
        most = granted - 1 if 0 in (*values, parameter.value) else granted
        values = [each for each in values if not isinstance(each, int) or each <= most]
    return Axis(parameter.name, tuple(dict.fromkeys([parameter.value, *values])), parameter.value)


def _drawn(size: int, count: int, seed: int) -> Iterator[int]:
    """Give ``count + 1`` different numbers below ``size``, or all: the start of a shuffle that is never laid out."""
    source = random.Random(seed)
    moved: dict[int, int] = {}
    for place in range(min(size, count + 1)):
        other = source.randrange(place, size)
        yield moved.get(other, other)
        moved[other] = moved.get(place, place)


def write_descriptor(
    path: Path, schedule: Schedule, values: Mapping[str, Value], provenance: Mapping[str, Any]
) -> Path:
    """Write the descriptor, and read it once, so that what cannot be read back is told here.

    Args:
        path: The file.
        schedule: What was searched, with the values that were the default of the search.
        values: The values found.
        provenance: How, in plain values.

    Raises:
        RecordError: the file cannot be written.
    """
    wanted = {**schedule.values, **values}
    lines = [
        f"# Written by a search over the parameters of {schedule.name}; see 'provenance' below.\n",
        f"# kernelmark model MODEL.py --pipeline {path.name} takes it.\n",
        _dumped("description", f"{schedule.name} with parameters found by a search"),
        "parameters:\n",
        *(f"  {_dumped(each.name, _declared(each, wanted[each.name]))}" for each in schedule.parameters),
        "pipeline:\n",
        *(f"  - {_dumped('include', _include(each, path.parent))}" for each in schedule.paths),
        "provenance:\n",
        *(f"  {_dumped(name, each)}" for name, each in provenance.items()),
    ]
    write_below(path, "".join(lines), "give another --write")
    load_schedule(path, schedule.target)
    return path


def write_below(path: Path, text: str, otherwise: str) -> None:
    """Write a file, and make its folder.

    Raises:
        RecordError: that cannot be done; the message ends with what to do ``otherwise``.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"cannot make the folder {path.parent}: {error.strerror}; {otherwise}") from error
    write_report(path, text)


def _declared(parameter: Parameter, value: Value) -> dict[str, Any]:
    """Declare a parameter anew, with its choices: what is tuned can be tuned again, and changed by hand."""
    plain, *choices = map(_plain, (value, *parameter.choices))
    if choices and plain not in choices:
        choices.append(plain)
    return {"default": plain, **({"choices": choices} if choices else {})}


def _include(path: Path, folder: Path) -> str:
    """Name a file so that the descriptor finds it: a shipped one on any machine, another from where it stands."""
    path = path.resolve()
    if path.is_relative_to(SHIPPED):
        return f"{SHIPPED_PREFIX}{path.relative_to(SHIPPED).as_posix()}"
    return Path(os.path.relpath(path, folder.resolve())).as_posix()


def _plain(value: Value) -> Any:
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value


def _dumped(name: str, value: Any) -> str:
    """Write an entry in one line; what has names itself stands in braces."""
    dump = partial(yaml.safe_dump, sort_keys=False, allow_unicode=True, width=10**6)
    if isinstance(value, dict):
        return f"{name}: {dump(value, default_flow_style=True)}"
    return dump({name: value})
