"""What one run stores: a header, one row per implementation, an end mark.

Everything here is frozen and complete when built; a validator refuses a row that says more than its
check allows (an unverified row cannot hold a ratio). Times are nanoseconds, sizes bytes, shares fractions.
Nothing here knows how a number was obtained or how it will be shown.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from kernelmark.records.fate import Check, Fate, RunOutcome
from kernelmark.records.notes import Note
from kernelmark.units import format_ratio

__all__ = [
    "Bound",
    "Cache",
    "ControlResult",
    "DeviceRecord",
    "Environment",
    "KernelShare",
    "OutputCheck",
    "PassRecord",
    "ProbeReading",
    "Protocol",
    "Ratio",
    "Record",
    "Role",
    "RooflineReading",
    "Row",
    "RunEnd",
    "RunHeader",
    "Statistics",
    "Telemetry",
    "Timing",
    "Unlike",
]

Ns = Annotated[int | float, Field(ge=0)]
"""Nanoseconds; an integer where the instrument gives integers."""


class Record(BaseModel):
    """Base of everything stored: frozen, and closed to fields it does not name."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Role(StrEnum):
    """Whose implementation a row is about."""

    OURS = "ours"
    BASELINE = "baseline"


class Cache(StrEnum):
    """The state of the caches when a timed call starts."""

    COLD = "cold"
    WARM = "warm"


class Bound(StrEnum):
    """Which ceiling a call meets first."""

    MEMORY = "memory"
    COMPUTE = "compute"


# --- checks ---------------------------------------------------------------------------------------


class OutputCheck(Record):
    """One output against the reference: the error, and where it is worst."""

    output: str
    dtype: str
    shape: tuple[int, ...]
    tolerance: str
    """The rule in words with its numbers, such as ``atol=0.001 rtol=0.001``."""
    tolerance_source: str = ""
    """Who said so: an option, a file, the case's declaration, or the policy for the output's dtype."""
    passed: bool
    total: int
    mismatched: int
    max_abs_error: float | None = None
    max_rel_error: float | None = None
    error_over_tolerance: float | None = None
    """The worst error as a multiple of what is allowed there; up to 1 passes."""
    worst_index: tuple[int, ...] | None = None
    expected: str | None = None
    got: str | None = None
    message: str = ""
    """Filled where the structure differs, so that there are no numbers to compare."""


class ControlResult(Record):
    """One deliberately wrong answer, and whether this case's own check caught it."""

    control: str
    applied: bool
    """False where the control happens to equal the right answer, and so proves nothing."""
    caught: bool


# --- times ----------------------------------------------------------------------------------------


class Statistics(Record):
    """Order statistics of one quantity over all samples of a row, in nanoseconds.

    ``p10`` and ``p90`` (nearest rank) describe the samples, never the uncertainty of the median.
    """

    samples: int = Field(ge=1)
    median_ns: Ns
    mean_ns: Ns
    min_ns: Ns
    max_ns: Ns
    p10_ns: Ns | None = None
    p90_ns: Ns | None = None
    std_ns: Ns | None = None
    notes: tuple[Note, ...] = ()
    """What could not be computed from so few samples."""


class Telemetry(Record):
    """The state of the device around one pass; ``None`` where the machine does not say."""

    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    load_average: float | None = None
    other_processes: tuple[str, ...] = ()
    busy_threads: int | None = None
    """Other threads of the measuring process that computed at that moment."""


class PassRecord(Record):
    """The samples of one implementation between two others: column ``i`` of each list is sample ``i``."""

    block: int = Field(ge=0)
    position: int = Field(ge=0)
    """Place in the block, from 0; the mirrored second half of a block counts on."""
    latency_ns: tuple[Ns, ...]
    device_busy_ns: tuple[Ns, ...]
    n_kernels: tuple[int, ...] | None = None
    n_copies: tuple[int, ...] | None = None
    n_memsets: tuple[int, ...] | None = None
    uncounted_copy_ns: tuple[Ns, ...] | None = None
    retries: int = 0
    lead_in: int | None = None
    """Untimed rounds right before the first sample; ``None`` for none."""
    estimate_ns: Ns | None = None
    """What one round was estimated to take, where each pass has its own counts."""
    before: Telemetry | None = None
    after: Telemetry | None = None

    @model_validator(mode="after")
    def _columns_agree(self) -> PassRecord:
        for name in ("device_busy_ns", "n_kernels", "n_copies", "n_memsets", "uncounted_copy_ns"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.latency_ns):
                raise ValueError(f"{name} has {len(column)} entries for {len(self.latency_ns)} samples")
        return self


class KernelShare(Record):
    """One kernel (or copy, or memset) of a call: how often it ran per call and its share of the busy time."""

    name: str
    kind: Literal["kernel", "copy", "memset"] = "kernel"
    per_call: float
    share: float = Field(ge=0, le=1.0001)


class ProbeReading(Record):
    """A read of known size, timed once warm and once after the flush, which shows whether cold is cold."""

    size_bytes: int
    warm_ns: Ns
    cold_ns: Ns
    flush_bytes: int
    flush_ns: Ns

    @property
    def ratio(self) -> float:
        """Cold over warm; near 1 means that the flush evicts nothing."""
        return self.cold_ns / self.warm_ns if self.warm_ns else float("inf")


class Timing(Record):
    """Everything one instrument read for one implementation."""

    timer: str
    cache: Cache
    device_busy: Statistics
    latency: Statistics
    gap_ns: Ns | None = None
    """Median of latency less busy time; ``None`` where the instrument cannot tell them apart."""
    n_kernels: int | None = None
    """The largest number of kernels seen in one call."""
    n_kernels_varied: bool = False
    n_copies: int | None = None
    n_memsets: int | None = None
    uncounted_copy_ns: Ns | None = None
    kernels: tuple[KernelShare, ...] = ()
    drift: float | None = None
    """Second half of the passes over the first half, less 1, from medians."""
    warmup_count: int = 0
    calibration_ns: Ns | None = None
    instrument_empty_ns: Ns | None = None
    """What the instrument reads for a call that does nothing."""
    retries: int = 0
    repeated_passes: int | None = None
    """Passes that were run again because their block had one under another clock; what they replace is dropped.
    ``None`` for none."""
    passes: tuple[PassRecord, ...] = ()
    notes: tuple[Note, ...] = ()


class Ratio(Record):
    """Baseline time over our time; above 1 means that ours is faster.

    The interval is a t interval over the log ratios of the blocks: the block is the unit, since samples of
    one pass are not independent. With one block there is no interval.
    """

    value: float = Field(gt=0)
    low: float | None = Field(default=None, gt=0)
    high: float | None = Field(default=None, gt=0)
    confidence: float = 0.95
    blocks: int = Field(ge=1)
    block_ratios: tuple[float, ...] = ()
    verdict: Literal["faster", "slower", "undecided", "no interval"] = "no interval"

    def __str__(self) -> str:
        """Write it as a report does: ``1.131 [1.059, 1.208] ours faster``."""
        verdict = f"ours {self.verdict}" if self.verdict in ("faster", "slower") else self.verdict
        return f"{format_ratio(self.value, self.low, self.high)} {verdict}"

    @model_validator(mode="after")
    def _interval_is_whole(self) -> Ratio:
        if (self.low is None) != (self.high is None):
            raise ValueError("an interval has two ends or none")
        if self.low is not None and self.high is not None and not self.low <= self.value <= self.high:
            raise ValueError(f"ratio {self.value} lies outside its own interval [{self.low}, {self.high}]")
        return self


class RooflineReading(Record):
    """What the call had to do, how fast it did it, and how far that is from what the device can do."""

    flops: int = Field(ge=0)
    bytes: int = Field(ge=0)
    tflops: float
    bandwidth_tbs: float
    profile: str | None = None
    """Name of the hardware profile; without one the fields below stay empty, never guessed."""
    profile_source: str | None = None
    speed_of_light_ns: Ns | None = None
    percent_of_speed_of_light: float | None = None
    bound: Bound | None = None
    anomaly: Note | None = None
    """What is impossible about this reading, with the numbers; it is stored as it was read, never clamped."""
    note: Note | None = None
    """Why the speed of light is empty."""


# --- rows, header, end ----------------------------------------------------------------------------


class Row(Record):
    """One implementation of one case: what was found, or why nothing was."""

    kind: Literal["row"] = "row"
    case: str
    op: str | None = None
    implementation: str
    role: Role
    backend: str = ""
    """How the implementation computes, where it says so (``triton``, ``torch inductor``, ...)."""
    check: Check
    note: Note | None = None
    """Why the check is what it is."""
    notes: tuple[Note, ...] = ()
    """Everything else a reader must know before using the numbers."""
    params: dict[str, Any] = Field(default_factory=dict)
    count_copies: bool = False
    outputs: tuple[OutputCheck, ...] = ()
    controls: tuple[ControlResult, ...] = ()
    timing: Timing | None = None
    ratio: Ratio | None = None
    roofline: RooflineReading | None = None
    traceback: str | None = None
    seed: int | None = None

    @property
    def fate(self) -> Fate:
        """What became of the implementation, as far as this row tells."""
        return Fate.of_check(self.check, timed=self.timing is not None)

    @field_validator("note", mode="before")
    @classmethod
    def _no_words_are_no_note(cls, note: Any) -> Any:
        return note or None

    @field_validator("params")
    @classmethod
    def _params_read_back_as_they_are(cls, params: dict[str, Any]) -> dict[str, Any]:
        return {name: _storable(value, name) for name, value in params.items()}

    @model_validator(mode="after")
    def _says_no_more_than_its_check(self) -> Row:
        timed, rated = self.timing is not None, self.ratio is not None
        check = f"a row whose check is {self.check.value!r}"
        for wrong, told in (
            (timed and not self.check.timeable, f"{check} cannot hold a time"),
            (rated and not self.check.comparable, f"{check} cannot hold a ratio"),
            (rated and self.role is Role.OURS, "a ratio belongs to a baseline's row"),
            (rated and not timed, "a ratio needs a time"),
            (self.roofline is not None and not timed, "a roofline reading needs a time"),
            (not self.check.comparable and self.note is None, f"{check} must say why"),
        ):
            if wrong:
                raise ValueError(told)
        return self


def _storable(value: Any, where: str) -> Any:
    """Give ``value`` as JSON will give it back, so that a row equals itself after a round trip."""
    match value:
        case None | bool():
            return value
        case str():
            return str(value)
        case int():
            return int(value)
        case float():  # JSON has no infinity; a fill value of -inf is an ordinary parameter of an op
            return float(value) if math.isfinite(value) else str(float(value))
        case list() | tuple():
            return [_storable(item, f"{where}[{index}]") for index, item in enumerate(value)]
        case dict():
            return {str(key): _storable(item, f"{where}.{key}") for key, item in value.items()}
    raise ValueError(
        f"params.{where} is a {type(value).__name__}; a parameter is text, a number, a list or a mapping"
    )


class Unlike(StrEnum):
    """What it means where two runs differ in something."""

    NOT_COMPARED = "not compared"
    """Their figures mean different things, ratios too."""
    MOVES_TIMES = "moves times"
    """Their ratios can be compared with that in mind, their times cannot."""
    NOTHING = "nothing"


_NOT, _TIMES, _NOTHING = Unlike.NOT_COMPARED, Unlike.MOVES_TIMES, Unlike.NOTHING


class DeviceRecord(Record):
    """The device, as far as it can be told."""

    kind: Annotated[str, _NOT]
    """``cpu``, ``cuda``, another accelerator's type in torch, or ``fake``."""
    name: Annotated[str, _NOT]
    index: Annotated[int | None, _NOTHING, Field(ge=0)] = None
    cores: Annotated[int | None, _NOT, Field(gt=0)] = None
    threads: Annotated[int | None, _NOT, Field(gt=0)] = None
    affinity: Annotated[tuple[int, ...] | None, _NOTHING] = None
    memory_bytes: Annotated[int | None, _TIMES, Field(gt=0)] = None
    cache_bytes: Annotated[dict[str, int], _TIMES] = Field(default_factory=dict)
    last_level_cache_bytes: Annotated[int | None, _TIMES, Field(ge=0)] = None
    driver: Annotated[str | None, _TIMES] = None
    capability: Annotated[str | None, _TIMES] = None
    details: Annotated[dict[str, str], _TIMES] = Field(default_factory=dict)


class Environment(Record):
    """Where a run was made."""

    kernelmark: Annotated[str, _TIMES]
    python: Annotated[str, _TIMES]
    platform: Annotated[str, _TIMES]
    libraries: Annotated[dict[str, str], _TIMES] = Field(default_factory=dict)
    git_revision: Annotated[str | None, _NOTHING] = None
    git_dirty: Annotated[bool | None, _NOTHING] = None
    hostname_hash: Annotated[str | None, _TIMES] = None
    """Tells two hosts apart without naming them."""


class Protocol(Record):
    """How samples were taken. More samples or blocks are only surer, so that a difference in them is none."""

    timer: Annotated[str, _NOT]
    cache: Annotated[Cache, _NOT]
    blocks: Annotated[int, _NOTHING, Field(gt=0)]
    warmup_ms: Annotated[float, _TIMES, Field(ge=0)]
    sample_ms: Annotated[float, _NOTHING, Field(ge=0)]
    prepare_ms: Annotated[float, _TIMES, Field(ge=0)]
    min_count: Annotated[int, _NOTHING, Field(ge=0)]
    max_count: Annotated[int | None, _NOTHING, Field(ge=0)] = None
    """``None`` for as many as fit."""
    cooldown_s: Annotated[float | None, _TIMES, Field(ge=0)] = None
    """The pause before each turn, where rounds of turns A B C stand in place of blocks; ``None`` for blocks."""
    verify_only: Annotated[bool, _NOT] = False


class RunHeader(Record):
    """First line of ``records.jsonl``; each value says what it means where two runs differ in it."""

    kind: Literal["header"] = "header"
    format_version: Annotated[int, _NOTHING]
    run: Annotated[str, _NOTHING]
    started: Annotated[str, _NOTHING]
    command: Annotated[tuple[str, ...], _NOTHING] = ()
    device: DeviceRecord
    environment: Environment
    protocol: Protocol
    probe: Annotated[ProbeReading | None, _NOTHING] = None
    notes: Annotated[tuple[Note, ...], _NOTHING] = ()


class RunEnd(Record):
    """Last line of a run that ended in order; a run without one was cut short."""

    kind: Literal["end"] = "end"
    ended: str
    rows: int
    outcome: RunOutcome = RunOutcome.COMPLETED
    detail: str = ""
