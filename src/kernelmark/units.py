"""Numbers with units as text, and back; the only place that rounds for people.

Times are stored in nanoseconds and sizes in bytes everywhere else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "NS_PER_MS",
    "NS_PER_S",
    "NS_PER_US",
    "TimeScale",
    "format_bytes",
    "format_percent",
    "format_rate",
    "format_ratio",
    "format_time",
    "significant",
]

NS_PER_US = 1e3
NS_PER_MS = 1e6
NS_PER_S = 1e9

_TIME_STEPS = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "µs"), (1.0, "ns"))
_RATE_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_BYTE_STEPS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def significant(value: float, digits: int = 4) -> str:
    """Write ``value`` with ``digits`` significant digits and no exponent for ordinary sizes."""
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -4 or magnitude > 9:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - magnitude)}f}"


def _scaled(value: float, steps: tuple[tuple[float, str], ...], digits: int = 4) -> str:
    scale, unit = next((step for step in steps if abs(value) >= step[0]), steps[-1])
    return f"{significant(value / scale, digits)} {unit}"


def format_time(ns: float | None, digits: int = 4) -> str:
    """Write a time given in nanoseconds with the unit that suits it; blank for ``None``."""
    return "" if ns is None else _scaled(ns, _TIME_STEPS, digits)


@dataclass(frozen=True, slots=True)
class TimeScale:
    """One unit and one number of decimals for times that are read next to each other."""

    unit: str
    ns_per_unit: float
    decimals: int

    @classmethod
    def fit(cls, times_ns: Iterable[float], digits: int = 4) -> TimeScale:
        """Choose the scale that shows the smallest time above zero with ``digits`` significant digits."""
        smallest = min((t for t in times_ns if 0 < t < math.inf), default=1.0)
        scale, unit = next((step for step in _TIME_STEPS if smallest >= step[0]), _TIME_STEPS[-1])
        magnitude = math.floor(math.log10(smallest / scale))
        return cls(unit, scale, min(max(0, digits - 1 - magnitude), 6))

    def format(self, ns: float | None) -> str:
        """Write ``ns`` in this scale; blank for ``None``."""
        return "" if ns is None else f"{ns / self.ns_per_unit:.{self.decimals}f} {self.unit}"


def format_bytes(size: int | None) -> str:
    """Write a size given in bytes with a binary unit; blank for ``None``."""
    return "" if size is None else _scaled(size, _BYTE_STEPS, 3)


def format_rate(per_s: float | None, unit: str) -> str:
    """Write a rate with a decimal prefix, such as ``4.800 TB/s`` or ``347.2 GFLOP/s``; blank for ``None``."""
    return "" if per_s is None else f"{_scaled(per_s, _RATE_STEPS)}{unit}"


def format_ratio(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """Write a ratio, with its interval where there is one: ``1.234 [1.229, 1.240]``."""
    if value is None:
        return ""
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def format_percent(fraction: float | None, digits: int = 1) -> str:
    """Write a fraction as a percentage; blank for ``None``."""
    return "" if fraction is None else f"{100 * fraction:.{digits}f} %"
