"""The roofline: which ceiling a call meets first, and how near it came.

Pure functions over numbers. After Williams, Waterman and Patterson, "Roofline: an insightful visual
performance model for multicore architectures", CACM 52(4), 2009: a call that moves ``bytes`` and computes
``flops`` takes at least ``max(bytes / bandwidth, flops / rate)``. Knows no device, reads no file, and guesses
nothing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType

from kernelmark.errors import UsageError
from kernelmark.records import Bound, Cache, DeviceRecord, Note, RooflineReading
from kernelmark.units import NS_PER_S, format_bytes, format_percent, format_rate

__all__ = ["TOLERANCE", "Calibration", "Figure", "Profile", "Rate", "Work", "read_roofline"]

TOLERANCE = 1.05
"""A reading above this share of a ceiling is an anomaly. The 5 % are for what a datasheet rounds (67 TFLOP/s
for 66.9) and for a clock above the one that it computes with."""

_CAUSES = "more than the device can do: a wrong byte or flop count, a call that skipped work, or a warm cache"


class Rate(StrEnum):
    """A kind of arithmetic that has a ceiling of its own."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    TF32 = "tf32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8 = "float8"
    INT8 = "int8"

    @classmethod
    def of(cls, compute: str) -> Rate | None:
        """Give the rate that counts for arithmetic in this dtype; ``None`` for one that has none."""
        name = "float8" if compute.startswith("float8_") else _COUNTS_AS.get(compute, compute)
        return next((rate for rate in cls if rate.value == name), None)


_COUNTS_AS = {"uint8": "int8", "complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True, slots=True)
class Work:
    """What one call has to do.

    Args:
        flops: Floating-point (or integer) operations; a multiply-add is two.
        bytes: Bytes that must cross the memory bus, each input and output once.
        compute: The dtype whose rate counts, by torch's name; ``tf32`` where float32 is multiplied as TF32.

    Raises:
        UsageError: a count is not a whole number from 0 up, or ``compute`` is empty.
    """

    flops: int
    bytes: int
    compute: str = "float32"

    def __post_init__(self) -> None:
        for name in ("flops", "bytes"):
            object.__setattr__(self, name, _count(name, getattr(self, name)))
        if not isinstance(self.compute, str) or not self.compute:
            raise UsageError(f"compute is {self.compute!r}; name a dtype, such as 'bfloat16'")


@dataclass(frozen=True, slots=True)
class Figure:
    """One ceiling, bytes or operations per second, and where it is from."""

    per_s: float
    source: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """When and under which conditions a profile was measured."""

    date: str
    conditions: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, float] = field(default_factory=dict)
    """Every figure that was read, ceiling or not; the name ends with the unit."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The ceilings of one device.

    ``match`` holds patterns for the device's name as torch reports it (``*`` and ``?``, case counts).
    """

    name: str
    kind: str
    match: tuple[str, ...]
    bandwidth: Figure
    flops: Mapping[Rate, Figure] = field(default_factory=lambda: MappingProxyType({}))
    calibration: Calibration | None = None
    path: str = ""

    def matches(self, device: DeviceRecord) -> bool:
        """Say whether this profile is for ``device``."""
        named = any(fnmatchcase(device.name, pattern) for pattern in self.match)
        return named and device.kind == self.kind


@dataclass(frozen=True, slots=True)
class _Ceiling:
    bound: Bound
    work: int
    unit: str
    figure: Figure

    @property
    def time_ns(self) -> float:
        return self.work / self.figure.per_s * NS_PER_S


def read_roofline(
    work: Work,
    busy_ns: float,
    profile: Profile | None,
    *,
    cache: Cache,
    last_level_cache_bytes: int | None = None,
) -> RooflineReading:
    """Relate ``work`` done in ``busy_ns`` to the ceilings of ``profile``.

    What cannot be known stays empty, and ``note`` says why: no profile, no rate for the dtype, or a warm call
    whose data the last-level cache holds, so that memory does not bound it. What is above a ceiling is given
    as it is, with an ``anomaly``.

    Args:
        work: What the call had to do.
        busy_ns: How long the device was busy with it.
        profile: The ceilings, if any are known.
        cache: The state of the caches when the call started.
        last_level_cache_bytes: The size of the last-level cache, where it is known.
    """
    cached = (
        cache is Cache.WARM
        and last_level_cache_bytes is not None
        and 0 < work.bytes <= last_level_cache_bytes
    )
    ceilings, limit, note = _ceilings(work, profile, cached=cached)
    anomaly = _anomaly(ceilings, busy_ns, profile)
    return RooflineReading(
        flops=work.flops,
        bytes=work.bytes,
        tflops=_per_s(work.flops, busy_ns) / 1e12,
        bandwidth_tbs=_per_s(work.bytes, busy_ns) / 1e12,
        profile=profile.name if profile else None,
        profile_source=_sources(ceilings, profile),
        speed_of_light_ns=limit.time_ns if limit else None,
        percent_of_speed_of_light=100 * _share(limit, busy_ns) if limit else None,
        bound=limit.bound if limit else None,
        anomaly=Note.free(anomaly) if anomaly else None,
        note=Note.free(note) if note else None,
    )


def _ceilings(
    work: Work, profile: Profile | None, *, cached: bool
) -> tuple[list[_Ceiling], _Ceiling | None, str | None]:
    """Give the ceilings that hold for this call, the one that limits it, and why there is none.

    Each ceiling holds by itself, so one that is passed is an anomaly even where the limit is unknown.
    """
    if profile is None:
        return [], None, "no hardware profile for this device"
    rate = Rate.of(work.compute)
    figure = profile.flops.get(rate) if rate else None
    memory = _Ceiling(Bound.MEMORY, work.bytes, "B/s", profile.bandwidth) if work.bytes else None
    compute = _Ceiling(Bound.COMPUTE, work.flops, "FLOP/s", figure) if work.flops and figure else None
    holding = [c for c in (None if cached else memory, compute) if c is not None]
    if work.flops and figure is None:
        return holding, None, f"profile {profile.name!r} has no {work.compute} rate"
    if cached and memory and (compute is None or compute.time_ns < memory.time_ns):
        size = format_bytes(work.bytes)
        return (
            holding,
            None,
            f"warm: the last-level cache holds the call's {size}, so memory is no bound",
        )
    if not holding:
        return [], None, "the call has neither bytes nor flops"
    return holding, max(holding, key=lambda ceiling: ceiling.time_ns), None


def _anomaly(ceilings: list[_Ceiling], busy_ns: float, profile: Profile | None) -> str | None:
    worst = max(ceilings, key=lambda ceiling: ceiling.time_ns, default=None)
    if worst is None or profile is None or _share(worst, busy_ns) <= TOLERANCE:
        return None
    achieved = format_rate(_per_s(worst.work, busy_ns), worst.unit)
    ceiling = format_rate(worst.figure.per_s, worst.unit)
    text = (
        f"{format_percent(_share(worst, busy_ns))} of the {worst.bound.value} ceiling: {achieved} against"
        f" {ceiling} ({worst.figure.source}), {_CAUSES}"
    )
    if profile.calibration is not None:
        text += (
            f"; this ceiling was measured on {profile.calibration.date}, as its source says: calibrate again on a"
            " quiet machine"
        )
    return text


def _share(ceiling: _Ceiling, busy_ns: float) -> float:
    return ceiling.time_ns / busy_ns if busy_ns else math.inf


def _per_s(count: int, busy_ns: float) -> float:
    if not count:
        return 0.0
    return count / busy_ns * NS_PER_S if busy_ns else math.inf


def _sources(ceilings: list[_Ceiling], profile: Profile | None) -> str | None:
    if profile is None:
        return None
    used = dict.fromkeys(ceiling.figure.source for ceiling in ceilings)
    return "; ".join(used) or None


def _count(name: str, value: object) -> int:
    whole = value.is_integer() if isinstance(value, float) else not isinstance(value, bool)
    try:
        count = int(value) if isinstance(value, float) and whole else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        whole, count = False, 0
    if not whole or count < 0:
        raise UsageError(f"{name} is {value!r}; count whole {name} from 0 up")
    return count
