"""What an audit found: medians, spreads and biases of each instrument, and the limits that it is held to. Pure.

Made from readings alone, so that it is tested with numbers and no device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from kernelmark.audit.instruments import AuditCall, Instrument
from kernelmark.records import Cache, DeviceRecord, Environment
from kernelmark.units import format_percent, significant

__all__ = ["Audit", "Cell", "Failure", "Limit", "Line", "Reading", "Said", "Setting", "conclude", "spread"]

BIAS_LIMIT = 0.015
LONG_SPREAD_LIMIT = 0.005
SHORT_SPREAD_LIMIT = 0.05
COST_LIMIT_S = 1.0
"""What the default timer of an NVIDIA device is held to. On an H200 CUPTI read within 0.6 % of ncu on the three
long calls, with a spread of 0.03 to 0.3 % on those and up to 3.2 % on the short ones, in 0.3 to 0.9 s a reading."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One run of one call, as one instrument read it."""

    instrument: str
    call: str
    run: int
    ns: float
    """The instrument's median over its own samples."""
    samples: int | None = None
    cost_s: float | None = None
    """What it took to get there, by the host's clock."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an instrument gave nothing: for one call, or for none at all."""

    instrument: str
    reason: str
    call: str | None = None
    unavailable: bool = False
    """It is not here, or may not be used here; otherwise it is here and could not vouch for a reading."""


Said = Reading | Failure


@dataclass(frozen=True, slots=True)
class Setting:
    """What was asked for, on which device, with what."""

    device: DeviceRecord
    environment: Environment
    made: str
    """When: ISO 8601, UTC."""
    default_timer: str
    calls: tuple[AuditCall, ...]
    instruments: tuple[Instrument, ...]
    runs: int
    references: tuple[str, ...]
    """What the others are measured against: the first of these that read."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the instruments that are not kernelmark's."""

    @property
    def names(self) -> tuple[str, ...]:
        """The calls' names."""
        return tuple(call.name for call in self.calls)


@dataclass(frozen=True, slots=True)
class Cell:
    """One call as one instrument read it."""

    call: str
    instrument: str
    runs_ns: tuple[float, ...]
    costs_s: tuple[float, ...] = ()
    samples: int | None = None
    """The fewest that a run rests on."""
    bias: float | None = None
    """Its median over the reference's, less 1; ``None`` for the reference and where caches were not alike."""
    note: str = ""
    """Why runs are missing."""

    @property
    def median_ns(self) -> float | None:
        """The median over the runs."""
        return median(self.runs_ns) if self.runs_ns else None

    @property
    def spread(self) -> float | None:
        """How far the runs lie apart."""
        return spread(self.runs_ns)

    @property
    def cost_s(self) -> float | None:
        """The median over the runs of what a reading took."""
        return median(self.costs_s) if self.costs_s else None


@dataclass(frozen=True, slots=True)
class Line:
    """One instrument: whether it read, and what a reading of it costs."""

    instrument: Instrument
    status: str
    """``read``, ``unavailable: why`` or ``no reading: why``."""
    cost_s: float | None = None
    """Of the call that took it longest."""
    note: str = ""
    """What ended its reading before its time."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that the default timer is held to."""

    what: str
    most: float
    found: float | None
    """``None`` where it could not be judged."""
    is_share: bool

    @property
    def kept(self) -> bool | None:
        """Whether it is kept; ``None`` where it could not be judged."""
        return None if self.found is None else abs(self.found) <= self.most

    def shown(self, value: float | None) -> str:
        """Write a value of this limit for people."""
        if value is None:
            return "not judged"
        return format_percent(value, 2) if self.is_share else f"{significant(value, 3)} s"


@dataclass(frozen=True, slots=True)
class Audit:
    """Everything that an audit found."""

    setting: Setting
    reference: str | None
    lines: tuple[Line, ...]
    cells: tuple[Cell, ...]
    limits: tuple[Limit, ...] = ()
    doubts: tuple[str, ...] = ()

    def cell(self, call: str, instrument: str) -> Cell:
        """Give what ``instrument`` read of ``call``."""
        return next(each for each in self.cells if (each.call, each.instrument) == (call, instrument))


def spread(values: Sequence[float]) -> float | None:
    """Give (largest - smallest) / median; ``None`` for fewer than two values."""
    return (max(values) - min(values)) / median(values) if len(values) > 1 else None


def conclude(setting: Setting, said: Sequence[Said]) -> Audit:
    """Turn what was said into tables, and hold the default timer to its limits."""
    cells = {
        (call.name, each.name): _cell(call.name, each.name, said)
        for call in setting.calls
        for each in setting.instruments
    }
    lines = tuple(_line(each, cells, said, setting) for each in setting.instruments)
    reading = {line.instrument.name: line.instrument.cache for line in lines if line.status == "read"}
    reference = next((name for name in setting.references if name in reading), None)
    if reference is not None:
        cells = {key: _biased(cell, cells, reference, reading) for key, cell in cells.items()}
    audit = Audit(setting, reference, lines, tuple(cells.values()))
    limits = tuple(_limits(audit)) if setting.device.kind == "cuda" else ()
    return replace(audit, limits=limits, doubts=(*_unread(audit), *_missed(limits)))


def _cell(call: str, instrument: str, said: Sequence[Said]) -> Cell:
    about = [each for each in said if (each.instrument, each.call) == (instrument, call)]
    read = [each for each in about if isinstance(each, Reading)]
    failed = [each.reason for each in about if isinstance(each, Failure)]
    counts = [each.samples for each in read if each.samples is not None]
    return Cell(
        call,
        instrument,
        tuple(each.ns for each in sorted(read, key=lambda each: each.run)),
        tuple(each.cost_s for each in read if each.cost_s is not None),
        min(counts, default=None),
        note="; ".join(dict.fromkeys(failed)),
    )


def _line(instrument: Instrument, cells: Mapping[Any, Cell], said: Sequence[Said], setting: Setting) -> Line:
    mine = [cells[call.name, instrument.name] for call in setting.calls]
    failures = [each for each in said if isinstance(each, Failure) and each.instrument == instrument.name]
    costs = [cell.cost_s for cell in mine if cell.cost_s is not None]
    if any(cell.runs_ns for cell in mine):
        ends = dict.fromkeys(each.reason for each in failures if each.call is None)
        return Line(instrument, "read", max(costs, default=None), "; ".join(ends))
    reasons = "; ".join(dict.fromkeys(each.reason for each in failures)) or "nothing was said"
    gone = bool(failures) and all(each.unavailable for each in failures)
    return Line(instrument, f"{'unavailable' if gone else 'no reading'}: {reasons}")


def _biased(cell: Cell, cells: Mapping[Any, Cell], reference: str, caches: Mapping[str, Cache]) -> Cell:
    """Relate ``cell`` to the reference; a cold reading is not related to a warm one."""
    against = cells[cell.call, reference].median_ns
    alike = caches.get(cell.instrument) == caches[reference]
    if cell.instrument == reference or not alike or against is None or cell.median_ns is None:
        return cell
    return replace(cell, bias=cell.median_ns / against - 1)


def _limits(audit: Audit) -> Iterator[Limit]:
    timer = audit.setting.default_timer
    if timer not in {each.name for each in audit.setting.instruments}:
        return
    for call in audit.setting.calls:
        cell = audit.cell(call.name, timer)
        if call.long:
            off = cell.bias if audit.reference == "ncu" else None
            yield Limit(f"{timer} against ncu, {call.name}", BIAS_LIMIT, off, is_share=True)
        most = LONG_SPREAD_LIMIT if call.long else SHORT_SPREAD_LIMIT
        yield Limit(f"{timer} spread, {call.name}", most, cell.spread, is_share=True)
        yield Limit(f"{timer} cost, {call.name}", COST_LIMIT_S, cell.cost_s, is_share=False)


def _unread(audit: Audit) -> Iterator[str]:
    for line in audit.lines:
        name = line.instrument.name
        if line.status.startswith("no reading"):
            yield f"{name} gave {line.status}"
        if line.note:
            yield f"{name} did not read to the end: {line.note}"
    having_read = {line.instrument.name for line in audit.lines if line.status == "read"}
    for cell in audit.cells:
        if cell.note and cell.instrument in having_read:
            yield f"{cell.instrument} on {cell.call}: {cell.note}"


def _missed(limits: Sequence[Limit]) -> Iterator[str]:
    for each in limits:
        if each.kept is False:
            yield f"{each.what}: {each.shown(each.found)}, where at most {each.shown(each.most)} is allowed"
