"""Which of what a run's header holds two runs must share to be compared.

Ratios were measured side by side, so that what moves all times moves them little; times of two runs were not.
Whoever compares says which of both it compares, and what may differ because it is the question::

    refuse_unlike(before.header, after.header)                                  # times
    told = refuse_unlike(before.header, after.header, times=False)              # ratios; what is told then
    refuse_unlike(before.header, after.header, ignore=("environment.libraries.torch",))
    refuse_unlike(result, other, keys=LIKENESS)                                 # other values, by keys of their own
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from kernelmark.errors import RecordError, UsageError
from kernelmark.records.model import DeviceRecord, Environment, Protocol, RunHeader, Unlike
from kernelmark.text import suggestion

__all__ = ["METADATA", "Difference", "refuse_unlike"]

_ABSENT = "(absent)"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something in which two runs differ."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.key} is {self.before!r} and {self.after!r}"


def _declared(record: type[BaseModel], above: str = "") -> Iterator[tuple[str, Unlike]]:
    for name, field in record.model_fields.items():
        if field.annotation in (DeviceRecord, Environment, Protocol):
            yield from _declared(field.annotation, f"{name}.")
        elif name != "kind" or above:
            yield above + name, next(each for each in field.metadata if isinstance(each, Unlike))


METADATA: Mapping[str, Unlike] = dict(_declared(RunHeader))
"""Where each thing that a ``RunHeader`` holds is, as a dotted path, and what a difference in it means."""


def refuse_unlike(
    before: Any,
    after: Any,
    *,
    times: bool = True,
    ignore: Iterable[str] = (),
    keys: Mapping[str, Unlike] = METADATA,
    advice: str = "measure again under the same conditions, or name what may differ",
) -> tuple[Difference, ...]:
    """Make sure that two runs may be compared; gives the differences to tell all the same.

    Args:
        before: A header, or a mapping that holds what one holds.
        after: The other.
        times: Whether times are compared, and not ratios alone.
        ignore: Keys that may differ, such as the library whose change is the question.
        keys: What to look at.

        advice: What to do about a difference.

    Raises:
        RecordError: they differ in what must be equal; names each key and both values.
        UsageError: ``ignore`` names what is not looked at.
    """
    ignored = tuple(ignore)
    for name in ignored:
        if not any(_within(name, key) or _within(key, name) for key in keys):
            hint = suggestion(name, keys, there_are="keys")
            raise UsageError(f"ignore={name!r}: no run holds it; {hint}")
    refused, told = [], []
    for key, unlike in keys.items():
        if unlike is Unlike.NOTHING:
            continue
        matters = times or unlike is Unlike.NOT_COMPARED
        for found in _differences(key, _value_at(before, key), _value_at(after, key)):
            asked = any(_within(found.key, name) for name in ignored)
            (refused if matters and not asked else told).append(found)
    if refused:
        raise RecordError(
            f"these runs are not alike and are not compared: {'; '.join(map(str, refused))}; {advice}"
        )
    return tuple(told)


def _value_at(holder: Any, key: str) -> Any:
    """Give what stands at a dotted path through records and mappings."""
    found: Any = holder
    for part in key.split("."):
        if isinstance(found, Mapping):
            found = found.get(part, _ABSENT)
        elif hasattr(found, part):
            found = getattr(found, part)
        else:
            return None if found is None else _ABSENT
    return found


def _differences(key: str, before: Any, after: Any) -> list[Difference]:
    """Compare two values; mappings entry by entry, so that a library is named and not a list of them."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        names = dict.fromkeys([*before, *after])
        pairs = ((name, before.get(name, _ABSENT), after.get(name, _ABSENT)) for name in names)
        return [found for name, old, new in pairs for found in _differences(f"{key}.{name}", old, new)]
    return [] if before == after else [Difference(key, before, after)]


def _within(key: str, whole: str) -> bool:
    return key == whole or key.startswith(f"{whole}.")
