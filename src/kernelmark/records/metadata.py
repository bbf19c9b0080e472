"""What a run's header holds, as one table, and which of it two runs must share to be compared.

Ratios were measured side by side, so that what moves all times moves them little; times of two runs were not.
Whoever compares says which of both it compares, and what may differ because it is the question::

    refuse_unlike(before.header, after.header)                                  # times
    told = refuse_unlike(before.header, after.header, times=False)              # ratios; what is told then
    refuse_unlike(before.header, after.header, ignore=("environment.libraries.torch",))
    refuse_unlike(result, other, keys=LIKENESS)                                 # other values, by keys of their own
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from kernelmark.errors import RecordError, UsageError
from kernelmark.text.near import suggestion

__all__ = ["METADATA", "Difference", "Metadata", "Unlike", "problems", "refuse_unlike", "value_at"]

_ABSENT = "(absent)"


class Unlike(StrEnum):
    """What it means where two runs differ in something."""

    NOT_COMPARED = "not compared"
    """Their figures mean different things, ratios too."""
    MOVES_TIMES = "moves times"
    """Their ratios can be compared with that in mind, their times cannot."""
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Metadata:
    """One thing that a header holds.

    Args:
        key: Where it is, as a dotted path.
        type: What it is, where it is not ``None``.
        unlike: What a difference in it means.
        unit: Of a number.
        check: Whether a value can be; without one, every value of the type can.
        allowed: What ``check`` allows, in words.
    """

    key: str
    type: type
    unlike: Unlike = Unlike.NOTHING
    unit: str = ""
    check: Callable[[Any], bool] | None = None
    allowed: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something in which two runs differ."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.key} is {self.before!r} and {self.after!r}"


_SOME: dict[str, Any] = {"check": lambda value: value > 0, "allowed": "more than 0"}
_ANY: dict[str, Any] = {"check": lambda value: value >= 0, "allowed": "0 or more"}
_NOT, _TIMES = Unlike.NOT_COMPARED, Unlike.MOVES_TIMES

METADATA: tuple[Metadata, ...] = (
    Metadata("format_version", int),
    Metadata("run", str),
    Metadata("started", str),
    Metadata("command", tuple),
    Metadata("device.kind", str, _NOT),
    Metadata("device.name", str, _NOT),
    Metadata("device.index", int, **_ANY),
    Metadata("device.cores", int, _NOT, **_SOME),
    Metadata("device.threads", int, _NOT, **_SOME),
    Metadata("device.affinity", tuple),
    Metadata("device.memory_bytes", int, _TIMES, "bytes", **_SOME),
    Metadata("device.cache_bytes", dict, _TIMES, "bytes"),
    Metadata("device.last_level_cache_bytes", int, _TIMES, "bytes", **_ANY),
    Metadata("device.driver", str, _TIMES),
    Metadata("device.capability", str, _TIMES),
    Metadata("device.details", dict, _TIMES),
    Metadata("environment.kernelmark", str, _TIMES),
    Metadata("environment.python", str, _TIMES),
    Metadata("environment.platform", str, _TIMES),
    Metadata("environment.libraries", dict, _TIMES),
    Metadata("environment.git_revision", str),
    Metadata("environment.git_dirty", bool),
    Metadata("environment.hostname_hash", str, _TIMES),
    Metadata("protocol.timer", str, _NOT),
    Metadata("protocol.cache", str, _NOT),
    Metadata("protocol.blocks", int, **_SOME),
    Metadata("protocol.warmup_ms", float, _TIMES, "ms", **_ANY),
    Metadata("protocol.sample_ms", float, unit="ms", **_ANY),
    Metadata("protocol.prepare_ms", float, _TIMES, "ms", **_ANY),
    Metadata("protocol.min_count", int, **_ANY),
    Metadata("protocol.max_count", int, **_ANY),
    Metadata("protocol.cooldown_s", float, _TIMES, "s", **_ANY),
    Metadata("protocol.verify_only", bool, _NOT),
    Metadata("probe", BaseModel),
    Metadata("notes", tuple),
)
"""Everything that a ``RunHeader`` holds. More samples or blocks are only surer, so that a difference there is none."""


def problems(header: Any, keys: Iterable[Metadata] = METADATA) -> tuple[str, ...]:
    """Say which values of ``header`` cannot be, in a sentence each."""
    found = []
    for each in keys:
        value = value_at(header, each.key)
        if value is not None and value != _ABSENT and each.check is not None and not each.check(value):
            unit = f" {each.unit}" if each.unit else ""
            found.append(f"{each.key} is {value!r}{unit}, and must be {each.allowed}")
    return tuple(found)


def refuse_unlike(
    before: Any,
    after: Any,
    *,
    times: bool = True,
    ignore: Iterable[str] = (),
    keys: Sequence[Metadata] = METADATA,
) -> tuple[Difference, ...]:
    """Make sure that two runs may be compared; gives the differences to tell all the same.

    Args:
        before: A header, or a mapping that holds what one holds.
        after: The other.
        times: Whether times are compared, and not ratios alone.
        ignore: Keys that may differ, such as the library whose change is the question.
        keys: What to look at.

    Raises:
        RecordError: they differ in what must be equal; names each key and both values.
        UsageError: ``ignore`` names what is not looked at.
    """
    ignored = tuple(ignore)
    for name in ignored:
        if not any(_within(name, each.key) or _within(each.key, name) for each in keys):
            hint = suggestion(name, [each.key for each in keys], there_are="keys")
            raise UsageError(f"ignore={name!r}: no run holds it; {hint}")
    refused, told = [], []
    for each in keys:
        if each.unlike is Unlike.NOTHING:
            continue
        for found in _differences(each.key, value_at(before, each.key), value_at(after, each.key)):
            if any(_within(found.key, name) for name in ignored):
                told.append(found)
            elif times or each.unlike is Unlike.NOT_COMPARED:
                refused.append(found)
            else:
                told.append(found)
    if refused:
        raise RecordError(
            f"these runs are not alike and are not compared: {'; '.join(map(str, refused))}; measure again under the"
            " same conditions, or name what may differ"
        )
    return tuple(told)


def value_at(holder: Any, key: str) -> Any:
    """Give what stands at a dotted path through records and mappings; ``(absent)`` for nothing."""
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
    """Whether ``key`` is ``whole`` or a part of it."""
    return key == whole or key.startswith(f"{whole}.")
