"""What a row says: the one table of quantities, over which every renderer loops.

Each quantity is read from the record as it stands; no ratio, verdict or statistic is computed here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from kernelmark.records import Check, Ratio, RooflineReading, Row, Statistics, Timing
from kernelmark.report.notes import note_text, row_notes
from kernelmark.report.plain import visible
from kernelmark.units import TimeScale, format_time, significant

__all__ = [
    "CHECK_MARKS",
    "COLUMNS",
    "NOTES",
    "SHOWN",
    "Align",
    "Column",
    "Value",
    "filled_columns",
    "ratio_text",
]

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
        help: What it means, for people.
        heading: Its name for people; without one only the formats for machines show it.
        show: Writes it for people, times in the scale of the row's case; by default the value as text.
        align: The side on which its cells line up.
        drop: When it leaves a narrow table: the highest first, 0 never.
    """

    key: str
    get: Callable[[Row], Value]
    help: str
    heading: str = ""
    show: Callable[[Row, TimeScale], str] | None = None
    align: Align = Align.RIGHT
    drop: int = 0

    def text(self, row: Row, scale: TimeScale) -> str:
        """Write the quantity for people; blank where the row does not say."""
        if self.show is not None:
            return self.show(row, scale)
        value = self.get(row)
        return "" if value is None else visible(str(value))


def filled_columns(rows: Iterable[Row]) -> tuple[Column, ...]:
    """Give the columns for people that hold something in at least one of ``rows``."""
    rows, scale = list(rows), TimeScale.fit(())
    return tuple(column for column in SHOWN if any(column.text(row, scale) for row in rows))


def ratio_text(ratio: Ratio | None) -> str:
    """Write a ratio with its interval and its verdict."""
    return "" if ratio is None else str(ratio)


# --- how a quantity is reached and written -----------------------------------------------------------


def _timing(read: Callable[[Timing], Value]) -> Callable[[Row], Value]:
    return lambda row: None if row.timing is None else read(row.timing)


def _ratio(read: Callable[[Ratio], Value]) -> Callable[[Row], Value]:
    return lambda row: None if row.ratio is None else read(row.ratio)


def _roofline(read: Callable[[RooflineReading], Value]) -> Callable[[Row], Value]:
    return lambda row: None if row.roofline is None else read(row.roofline)


def _worst(read: Callable[..., float | None]) -> Callable[[Row], Value]:
    def get(row: Row) -> Value:
        errors = [error for output in row.outputs if (error := read(output)) is not None]
        return max(errors, key=lambda error: math.inf if math.isnan(error) else error, default=None)

    return get


def _time(get: Callable[[Row], Value]) -> Callable[[Row, TimeScale], str]:
    return lambda row, scale: scale.format(get(row))  # type: ignore[arg-type]


def _number(get: Callable[[Row], Value], *, digits: int, unit: str = "") -> Callable[[Row, TimeScale], str]:
    def show(row: Row, _scale: TimeScale) -> str:
        value = get(row)
        return "" if value is None else f"{significant(float(value), digits)}{unit}"

    return show


def _show_check(row: Row, _scale: TimeScale) -> str:
    mark = CHECK_MARKS.get(row.check)
    return f"{mark} {row.check}" if mark else str(row.check)


def _show_percent(row: Row, _scale: TimeScale) -> str:
    percent = row.roofline and row.roofline.percent_of_speed_of_light
    return "" if percent is None else f"{percent:.1f} %"


def _show_drift(row: Row, _scale: TimeScale) -> str:
    drift = row.timing and row.timing.drift
    return "" if drift is None else f"{100 * drift:+.1f} %".replace("-0.0", "0.0").replace("+0.0", "0.0")


def _show_empty(row: Row, _scale: TimeScale) -> str:
    return (
        format_time(row.timing.instrument_empty_ns, 3) if row.timing else ""
    )  # of nanoseconds beside any time


def _statistics(name: str, what: str, read: Callable[[Timing], Statistics]) -> tuple[Column, ...]:
    """Give the order statistics that only machines are shown, for one of a row's two times."""
    return tuple(
        Column(
            f"{name}_{each}_ns", _timing(lambda timing, each=each: getattr(read(timing), f"{each}_ns")), text
        )
        for each, text in (
            ("mean", f"Mean {what} over the samples."),
            ("min", f"Smallest {what}."),
            ("max", f"Largest {what}."),
            ("std", f"Standard deviation of the {what} over the samples."),
        )
    )


# --- the table -----------------------------------------------------------------------------------------

_error = _worst(lambda output: output.error_over_tolerance)
_busy = _timing(lambda timing: timing.device_busy.median_ns)
_latency = _timing(lambda timing: timing.latency.median_ns)
_gap = _timing(lambda timing: timing.gap_ns)
_empty = _timing(lambda timing: timing.instrument_empty_ns)
_p10 = _timing(lambda timing: timing.device_busy.p10_ns)
_p90 = _timing(lambda timing: timing.device_busy.p90_ns)
_tflops = _roofline(lambda reading: reading.tflops if reading.flops else None)
_bandwidth = _roofline(lambda reading: reading.bandwidth_tbs if reading.bytes else None)

COLUMNS: tuple[Column, ...] = (
    Column("case", lambda row: row.case, "The workload call.", align=Align.LEFT),
    Column("op", lambda row: row.op, "The op that the case calls.", align=Align.LEFT),
    Column(
        "implementation",
        lambda row: row.implementation,
        "One way to run the case, under the name it was given.",
        heading="implementation",
        align=Align.LEFT,
    ),
    Column("role", lambda row: row.role.value, "Whether it is ours or a baseline.", align=Align.LEFT),
    Column(
        "backend",
        lambda row: row.backend or None,
        "How the implementation computes, where it says so.",
        heading="backend",
        align=Align.LEFT,
        drop=8,
    ),
    Column(
        "check",
        lambda row: row.check.value,
        "What is known about its answers; a mark before the word says that nothing vouches for them.",
        heading="check",
        show=_show_check,
        align=Align.LEFT,
    ),
    Column("note", lambda row: note_text(row.note) or None, "Why the check is what it is.", align=Align.LEFT),
    Column(
        "error_over_tolerance",
        _error,
        "The worst error of any output as a multiple of what is allowed there; up to 1 passes.",
        heading="error / tolerance",
        show=_number(_error, digits=3),
        drop=9,
    ),
    Column(
        "max_abs_error",
        _worst(lambda output: output.max_abs_error),
        "The largest absolute error of any output.",
    ),
    Column("timer", _timing(lambda timing: timing.timer), "The instrument.", align=Align.LEFT),
    Column(
        "cache",
        _timing(lambda timing: timing.cache.value),
        "The state of the caches when a timed call starts.",
        align=Align.LEFT,
    ),
    Column(
        "device_busy_ns",
        _busy,
        "Median time in which the device works for the call; overlaps count once, gaps not at all.",
        heading="device busy",
        show=_time(_busy),
    ),
    *_statistics("device_busy", "device busy time", lambda timing: timing.device_busy),
    Column(
        "latency_ns",
        _latency,
        "Median time from the start of a call to the end of its work, gaps included.",
        heading="latency",
        show=_time(_latency),
        drop=3,
    ),
    *_statistics("latency", "latency", lambda timing: timing.latency),
    Column(
        "gap_ns",
        _gap,
        "Median of latency less device busy time; blank where the instrument cannot tell them apart.",
        heading="gap",
        show=_time(_gap),
        drop=6,
    ),
    Column(
        "n_kernels",
        _timing(lambda timing: timing.n_kernels),
        "The largest number of kernels that one call ran.",
        heading="kernels",
        drop=7,
    ),
    Column(
        "n_kernels_varied",
        _timing(lambda timing: timing.n_kernels_varied),
        "Whether the number of kernels differed between calls.",
    ),
    Column("n_copies", _timing(lambda timing: timing.n_copies), "The largest number of copies in one call."),
    Column(
        "n_memsets", _timing(lambda timing: timing.n_memsets), "The largest number of memsets in one call."
    ),
    Column(
        "uncounted_copy_ns",
        _timing(lambda timing: timing.uncounted_copy_ns),
        "Median time of copies inside a call that device busy time does not count.",
    ),
    Column("count_copies", lambda row: row.count_copies, "Whether the case counts copies inside a call."),
    Column(
        "samples",
        _timing(lambda timing: timing.device_busy.samples),
        "Number of timed calls behind the medians.",
        heading="samples",
        drop=10,
    ),
    Column(
        "device_busy_p10_ns",
        _p10,
        "One sample in ten has a device busy time of this or less; this is spread, not uncertainty.",
        heading="p10",
        show=_time(_p10),
        drop=11,
    ),
    Column(
        "device_busy_p90_ns",
        _p90,
        "One sample in ten has a device busy time of this or more; this is spread, not uncertainty.",
        heading="p90",
        show=_time(_p90),
        drop=12,
    ),
    Column(
        "instrument_empty_ns",
        _empty,
        "What the instrument reads for a call that does nothing; it is in every reading.",
        heading="empty reading",
        show=_show_empty,
        drop=13,
    ),
    Column(
        "drift",
        _timing(lambda timing: timing.drift),
        "Median of the second half of the passes over that of the first, less 1.",
        heading="drift",
        show=_show_drift,
        drop=14,
    ),
    Column("retries", _timing(lambda timing: timing.retries), "Passes that had to be read again."),
    Column(
        "flops", _roofline(lambda reading: reading.flops or None), "Floating-point operations of one call."
    ),
    Column("bytes", _roofline(lambda reading: reading.bytes), "Bytes that one call must move."),
    Column(
        "tflops",
        _tflops,
        "Floating-point operations per second of device busy time, in 10¹²; blank where none are known.",
        heading="TFLOP/s",
        show=_number(_tflops, digits=4),
        drop=5,
    ),
    Column(
        "bandwidth_tbs",
        _bandwidth,
        "Bytes per second of device busy time, in 10¹²; blank where none are known.",
        heading="TB/s",
        show=_number(_bandwidth, digits=4),
        drop=4,
    ),
    Column(
        "speed_of_light_ns",
        _roofline(lambda reading: reading.speed_of_light_ns),
        "The shortest time that the device's ceilings allow.",
    ),
    Column(
        "percent_of_speed_of_light",
        _roofline(lambda reading: reading.percent_of_speed_of_light),
        "The shortest time that the device's ceilings allow, in percent of device busy time; "
        "blank where there is no profile of the device.",
        heading="% of speed of light",
        show=_show_percent,
        drop=2,
    ),
    Column(
        "bound",
        _roofline(lambda reading: reading.bound and reading.bound.value),
        "Which ceiling the call meets first.",
        align=Align.LEFT,
    ),
    Column(
        "profile",
        _roofline(lambda reading: reading.profile),
        "The hardware profile in use.",
        align=Align.LEFT,
    ),
    Column(
        "ratio",
        _ratio(lambda ratio: ratio.value),
        "Baseline time over our time, so above 1 ours is faster; with the interval of the ratio over blocks, "
        "and the verdict. Only between answers that were checked.",
        heading="ratio [low, high]",
        show=lambda row, _scale: ratio_text(row.ratio),
        align=Align.LEFT,
    ),
    Column("ratio_low", _ratio(lambda ratio: ratio.low), "Lower end of the ratio's interval."),
    Column("ratio_high", _ratio(lambda ratio: ratio.high), "Upper end of the ratio's interval."),
    Column("ratio_confidence", _ratio(lambda ratio: ratio.confidence), "Confidence of the ratio's interval."),
    Column("ratio_blocks", _ratio(lambda ratio: ratio.blocks), "Number of blocks behind the ratio."),
    Column(
        "verdict",
        _ratio(lambda ratio: ratio.verdict),
        "Whether ours is faster or slower, undecided, or without an interval.",
        align=Align.LEFT,
    ),
    Column("seed", lambda row: row.seed, "The seed of the inputs."),
    Column(
        "params",
        lambda row: json.dumps(row.params, ensure_ascii=False),
        "What the case is called with, as JSON.",
        align=Align.LEFT,
    ),
    Column(
        "notes",
        lambda row: "; ".join(row_notes(row)) or None,
        "What else to know before using the numbers.",
        heading="notes",
        align=Align.LEFT,
    ),
)

SHOWN = tuple(column for column in COLUMNS if column.heading)
"""The columns for people, in their order."""

NOTES = COLUMNS[-1]
"""The one column that formats for people set apart from the table, since its cells are sentences."""
