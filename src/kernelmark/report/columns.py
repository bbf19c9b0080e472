"""What a row says: the one table of quantities, over which every renderer loops.

Each quantity is read from the record as it stands; no ratio, verdict or statistic is computed here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kernelmark.records import Check, OutputCheck, Ratio, RooflineReading, Row, Timing
from kernelmark.report.notes import note_text, row_notes
from kernelmark.report.plain import visible
from kernelmark.units import TimeScale, format_time, significant

__all__ = ["CHECK_MARKS", "COLUMNS", "NOTES", "SHOWN", "Align", "Column", "Value", "filled_columns"]

Value = str | int | float | bool | None

CHECK_MARKS = {
    Check.UNVERIFIED: "!",
    Check.NONCOMPARABLE: "!",
    Check.FAILED: "✗",
    Check.UNAVAILABLE: "–",
}
"""Marks that stand before the word of a check that vouches for nothing, so that it shows without colour."""


class Align(StrEnum):
    """On which side a column's cells line up."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, slots=True)
class Column:
    """One quantity of a row.

    Args:
        key: Its name for machines, with its unit at the end where it has one.
        get: Reads it from a row; ``None`` where the row does not say.
        heading: Its name for people; without one only the formats for machines show it.
        show: Writes it for people, times in the scale of the row's case; by default the value as text.
        align: The side on which its cells line up.
        drop: When it leaves a narrow table: the highest first, 0 never.
    """

    key: str
    get: Callable[[Row], Value]
    heading: str = ""
    show: Callable[[Any, TimeScale, Row], str] | None = None
    align: Align = Align.RIGHT
    drop: int = 0

    @property
    def help(self) -> str:
        """What it means, for those who read a page; docs/reports.md says it of every column."""
        return _HELP[self.key]

    def text(self, row: Row, scale: TimeScale) -> str:
        """Write the quantity for people; blank where the row does not say."""
        value = self.get(row)
        if value is None:
            return ""
        return self.show(value, scale, row) if self.show is not None else visible(str(value))


def filled_columns(rows: Iterable[Row]) -> tuple[Column, ...]:
    """Give the columns for people that hold something in at least one of ``rows``."""
    rows, scale = list(rows), TimeScale.fit(())
    return tuple(column for column in SHOWN if any(column.text(row, scale) for row in rows))


# --- how a quantity is reached and written -----------------------------------------------------------


def _timing(read: Callable[[Timing], Value]) -> Callable[[Row], Value]:
    return lambda row: None if row.timing is None else read(row.timing)


def _ratio(read: Callable[[Ratio], Value]) -> Callable[[Row], Value]:
    return lambda row: None if row.ratio is None else read(row.ratio)


def _roofline(read: Callable[[RooflineReading], Value]) -> Callable[[Row], Value]:
    return lambda row: None if row.roofline is None else read(row.roofline)


def _worst(read: Callable[[OutputCheck], float | None]) -> Callable[[Row], Value]:
    def get(row: Row) -> Value:
        errors = [error for output in row.outputs if (error := read(output)) is not None]
        return max(errors, key=lambda error: math.inf if math.isnan(error) else error, default=None)

    return get


def _time(value: float, scale: TimeScale, _row: Row) -> str:
    return scale.format(value)


def _number(digits: int) -> Callable[[float, TimeScale, Row], str]:
    return lambda value, _scale, _row: significant(float(value), digits)


def _check(value: str, _scale: TimeScale, row: Row) -> str:
    return f"{CHECK_MARKS[row.check]} {value}" if row.check in CHECK_MARKS else value


def _drift(value: float, _scale: TimeScale, _row: Row) -> str:
    return f"{100 * value:+.1f} %".replace("-0.0", "0.0").replace("+0.0", "0.0")


# --- the table -----------------------------------------------------------------------------------------

COLUMNS: tuple[Column, ...] = (
    Column("case", lambda row: row.case, align=Align.LEFT),
    Column("op", lambda row: row.op, align=Align.LEFT),
    Column("implementation", lambda row: row.implementation, "implementation", align=Align.LEFT),
    Column("role", lambda row: row.role.value, align=Align.LEFT),
    Column("backend", lambda row: row.backend or None, "backend", align=Align.LEFT, drop=8),
    Column("check", lambda row: row.check.value, "check", _check, Align.LEFT),
    Column("note", lambda row: note_text(row.note) or None, align=Align.LEFT),
    Column(
        "error_over_tolerance",
        _worst(lambda o: o.error_over_tolerance),
        "error / tolerance",
        _number(3),
        drop=9,
    ),
    Column("max_abs_error", _worst(lambda o: o.max_abs_error)),
    Column("timer", _timing(lambda t: t.timer), align=Align.LEFT),
    Column("cache", _timing(lambda t: t.cache.value), align=Align.LEFT),
    Column("device_busy_ns", _timing(lambda t: t.device_busy.median_ns), "device busy", _time),
    Column("device_busy_mean_ns", _timing(lambda t: t.device_busy.mean_ns)),
    Column("device_busy_min_ns", _timing(lambda t: t.device_busy.min_ns)),
    Column("device_busy_max_ns", _timing(lambda t: t.device_busy.max_ns)),
    Column("device_busy_std_ns", _timing(lambda t: t.device_busy.std_ns)),
    Column("latency_ns", _timing(lambda t: t.latency.median_ns), "latency", _time, drop=3),
    Column("latency_mean_ns", _timing(lambda t: t.latency.mean_ns)),
    Column("latency_min_ns", _timing(lambda t: t.latency.min_ns)),
    Column("latency_max_ns", _timing(lambda t: t.latency.max_ns)),
    Column("latency_std_ns", _timing(lambda t: t.latency.std_ns)),
    Column("gap_ns", _timing(lambda t: t.gap_ns), "gap", _time, drop=6),
    Column("n_kernels", _timing(lambda t: t.n_kernels), "kernels", drop=7),
    Column("n_kernels_varied", _timing(lambda t: t.n_kernels_varied)),
    Column("n_copies", _timing(lambda t: t.n_copies)),
    Column("n_memsets", _timing(lambda t: t.n_memsets)),
    Column("uncounted_copy_ns", _timing(lambda t: t.uncounted_copy_ns)),
    Column("count_copies", lambda row: row.count_copies),
    Column("samples", _timing(lambda t: t.device_busy.samples), "samples", drop=10),
    Column("device_busy_p10_ns", _timing(lambda t: t.device_busy.p10_ns), "p10", _time, drop=11),
    Column("device_busy_p90_ns", _timing(lambda t: t.device_busy.p90_ns), "p90", _time, drop=12),
    Column(
        "instrument_empty_ns",
        _timing(lambda t: t.instrument_empty_ns),
        "empty reading",
        lambda ns, _scale, _row: format_time(ns, 3),  # of nanoseconds beside any time
        drop=13,
    ),
    Column("drift", _timing(lambda t: t.drift), "drift", _drift, drop=14),
    Column("retries", _timing(lambda t: t.retries)),
    Column("flops", _roofline(lambda r: r.flops or None)),
    Column("bytes", _roofline(lambda r: r.bytes)),
    Column("tflops", _roofline(lambda r: r.tflops if r.flops else None), "TFLOP/s", _number(4), drop=5),
    Column(
        "bandwidth_tbs", _roofline(lambda r: r.bandwidth_tbs if r.bytes else None), "TB/s", _number(4), drop=4
    ),
    Column("speed_of_light_ns", _roofline(lambda r: r.speed_of_light_ns)),
    Column(
        "percent_of_speed_of_light",
        _roofline(lambda r: r.percent_of_speed_of_light),
        "% of speed of light",
        lambda percent, _scale, _row: f"{percent:.1f} %",
        drop=2,
    ),
    Column("bound", _roofline(lambda r: r.bound and r.bound.value), align=Align.LEFT),
    Column("profile", _roofline(lambda r: r.profile), align=Align.LEFT),
    Column(
        "ratio",
        _ratio(lambda r: r.value),
        "ratio [low, high]",
        lambda _value, _scale, row: str(row.ratio),  # with its interval and its verdict
        Align.LEFT,
    ),
    Column("ratio_low", _ratio(lambda r: r.low)),
    Column("ratio_high", _ratio(lambda r: r.high)),
    Column("ratio_confidence", _ratio(lambda r: r.confidence)),
    Column("ratio_blocks", _ratio(lambda r: r.blocks)),
    Column("verdict", _ratio(lambda r: r.verdict), align=Align.LEFT),
    Column("seed", lambda row: row.seed),
    Column("params", lambda row: json.dumps(row.params, ensure_ascii=False), align=Align.LEFT),
    Column("notes", lambda row: "; ".join(row_notes(row)) or None, "notes", align=Align.LEFT),
)

_HELP = {
    "implementation": "One way to run the case, under the name it was given.",
    "backend": "How the implementation computes, where it says so.",
    "check": "What is known about its answers; a mark before the word says that nothing vouches for them.",
    "error_over_tolerance": "The worst error of any output as a multiple of what is allowed there; up to 1 passes.",
    "device_busy_ns": "Median time in which the device works for the call; overlaps count once, gaps not at all.",
    "latency_ns": "Median time from the start of a call to the end of its work, gaps included.",
    "gap_ns": "Median of latency less device busy time; blank where the instrument cannot tell them apart.",
    "n_kernels": "The largest number of kernels that one call ran.",
    "samples": "Number of timed calls behind the medians.",
    "device_busy_p10_ns": "One sample in ten has a device busy time of this or less; this is spread, not uncertainty.",
    "device_busy_p90_ns": "One sample in ten has a device busy time of this or more; this is spread, not uncertainty.",
    "instrument_empty_ns": "What the instrument reads for a call that does nothing; it is in every reading.",
    "drift": "Median of the second half of the passes over that of the first, less 1.",
    "tflops": "Floating-point operations per second of device busy time, in 10¹²; blank where none are known.",
    "bandwidth_tbs": "Bytes per second of device busy time, in 10¹²; blank where none are known.",
    "percent_of_speed_of_light": (
        "The shortest time that the device's ceilings allow, in percent of device busy time; blank where "
        "there is no profile of the device."
    ),
    "ratio": (
        "Baseline time over our time, so above 1 ours is faster; with the interval of the ratio over "
        "blocks, and the verdict. Only between answers that were checked."
    ),
}

SHOWN = tuple(column for column in COLUMNS if column.heading)
"""The columns for people, in their order."""

NOTES = COLUMNS[-1]
"""The one column that formats for people set apart from the table, since its cells are sentences."""
