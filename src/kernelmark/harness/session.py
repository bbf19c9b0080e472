"""One run: the device, the options, and the rows made so far.

A session is where rows go. It opens its device when something first needs it, and its record when the
first row is made, so that a run that makes nothing leaves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelmark.calibration import profile_for
from kernelmark.device import Device, measure_probe, open_device, probe_verdict
from kernelmark.errors import ProfileError, UnavailableError, UsageError
from kernelmark.harness.provenance import environment, now, run_name
from kernelmark.isolation import turn_to_time
from kernelmark.records import (
    FORMAT_VERSION,
    Cache,
    DeviceRecord,
    Note,
    ProbeReading,
    Protocol,
    Row,
    RunEnd,
    RunHeader,
    RunOutcome,
    RunWriter,
    StoredRun,
    refuse_other_caches,
)
from kernelmark.roofline import Profile
from kernelmark.timing import Budget, TimingOptions

__all__ = ["Session", "SessionOptions", "current_session", "use_session"]


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What a run is asked to do.

    Args:
        device: ``auto`` for the best there is, or a name such as ``cpu``, ``cuda:1``.
        timer: An instrument's name, or ``None`` for the device's own.
        verify_only: Check, and time nothing.
        require_baselines: Fail where a baseline is unavailable.
        cache: The state of the caches when a timed call starts.
        budget: How many samples to take.
        out: Folder to keep the run in; ``None`` keeps it in memory.
        ceilings: Whether the run needs the device's ceilings, which a CPU measures once; without a statement
            of work they serve nothing.
        other_values: Whether an implementation is called on other values at the same addresses before its check;
            a second check of the same code may leave that to the first.
    """

    device: str = "auto"
    timer: str | None = None
    verify_only: bool = False
    require_baselines: bool = False
    cache: Cache = Cache.COLD
    budget: Budget = field(default_factory=Budget)
    out: Path | None = None
    ceilings: bool = True
    notes: tuple[str, ...] = ()
    other_values: bool = True


class Session:
    """One run, from its first row to its end mark."""

    def __init__(self, options: SessionOptions | None = None, *, command: tuple[str, ...] = ()) -> None:
        self.options = options or SessionOptions()
        self.command = command
        self.rows: list[Row] = []
        self.header: RunHeader | None = None
        self.profile: Profile | None = None
        """The ceilings of the device, known once the run has started; ``None`` where there are none."""
        self.moved = False
        """Whether this is a process of its own for a profiler, which is not moved once more."""
        self._device: Device | None = None
        self._writer: RunWriter | None = None
        self._closed = False

    @classmethod
    def continuing(cls, options: SessionOptions, header: RunHeader, profile: Profile | None) -> Session:
        """Take part in a run that another process has described: its rows are kept here, and written there."""
        session = cls(replace(options, out=None))
        session.header, session.profile = header, profile
        session.moved = True
        return session

    @classmethod
    def resuming(cls, options: SessionOptions, run: StoredRun) -> Session:
        """Go on with a run that was cut short: its header holds, and its rows are here.

        Raises:
            RecordError: it has ended, or cannot be written.
        """
        session = cls(options, command=run.header.command)
        session._writer = RunWriter.reopen(run)
        session.header, session.rows = run.header, list(run.rows)
        return session

    @classmethod
    def ended(cls, options: SessionOptions, run: StoredRun) -> Session:
        """Look at a run that has ended: its header and rows are here, and nothing can be recorded."""
        session = cls(replace(options, out=None), command=run.header.command)
        session.header, session.rows = run.header, list(run.rows)
        session._closed = True
        return session

    @property
    def closed(self) -> bool:
        """Whether nothing more can be recorded."""
        return self._closed

    @property
    def device(self) -> Device:
        """The device, opened when first asked for."""
        if self._device is None:
            self._device = _opened(self.options.device)
        return self._device

    @property
    def timer_name(self) -> str:
        """The name of the instrument in use."""
        return self.options.timer or self.device.default_timer

    @property
    def folder(self) -> Path | None:
        """Where the run is kept, once it holds something."""
        return self._writer.path.parent if self._writer else None

    def timing_options(self, *, count_copies: bool) -> TimingOptions:
        """Give the timing options of this run for a case with this copy policy."""
        return TimingOptions(budget=self.options.budget, cache=self.options.cache, count_copies=count_copies)

    def start(self) -> RunHeader:
        """Describe the run, and start its record where it has a folder; does nothing the second time.

        Raises:
            RecordError: the folder cannot be written.
            UnavailableError: the device cannot be had.
        """
        if self.header is None:
            header = self._describe()
            if self.options.out is not None:
                self._writer = RunWriter.create(Path(self.options.out), header)
            self.header = header
        return self.header

    def record(self, row: Row) -> None:
        """Keep one row; where the run has a folder, it is on disk when this returns.

        Raises:
            RecordError: it could not be written, or its caches were not as this run declares; the rows before it
                are intact.
        """
        if self._closed:
            raise UsageError("this session has ended; start another one for more rows")
        header = self.start()
        refuse_other_caches(header, row)
        if self._writer is not None:
            self._writer.row(row)
        self.rows.append(row)

    def close(self, outcome: str = "completed", detail: str = "") -> None:
        """Write the end mark; does nothing the second time, or where nothing was recorded."""
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            end = RunEnd(ended=now(), rows=self._writer.rows, outcome=RunOutcome(outcome), detail=detail)
            self._writer.end(end)

    def suspend(self) -> None:
        """Leave the run without an end mark, so that it can be gone on with; nothing can be recorded meanwhile."""
        self._closed = True
        if self._writer is not None:
            self._writer.close()

    def _find_profile(self, record: DeviceRecord) -> tuple[str, ...]:
        """Look up the device's ceilings; gives what a reader must know where there are none."""
        if not self.options.ceilings:
            return ()
        try:
            self.profile = profile_for(self.device)
        except (ProfileError, UnavailableError) as error:
            return (f"no speed of light: {error}",)
        return () if self.profile else (f"no speed of light: no hardware profile matches {record.name!r}",)

    def _describe(self) -> RunHeader:
        options, budget = self.options, self.options.budget
        device, record = self.device, self.device.describe()
        probe, notes = self._measure_device(device, record)
        return RunHeader(
            format_version=FORMAT_VERSION,
            run=run_name(),
            started=now(),
            command=self.command,
            device=record,
            environment=environment(),
            protocol=Protocol(
                timer=self.timer_name,
                cache=options.cache,
                blocks=budget.blocks,
                warmup_ms=budget.warmup_ms,
                sample_ms=budget.sample_ms,
                prepare_ms=budget.prepare_ms,
                min_count=budget.min_count,
                max_count=budget.max_count,
                verify_only=options.verify_only,
            ),
            probe=probe,
            notes=tuple(map(Note.free, filter(None, (*options.notes, *notes)))),
        )

    def _measure_device(
        self, device: Device, record: DeviceRecord
    ) -> tuple[ProbeReading | None, tuple[str, ...]]:
        """Read the caches' probe, and look the ceilings up; a run that times nothing needs neither."""
        if self.options.verify_only:
            return None, ()
        with turn_to_time():
            probe, doubt = _probe(device, self.options.cache)
            return probe, (doubt, *self._find_profile(record))


def _probe(device: Device, cache: Cache) -> tuple[ProbeReading | None, str]:
    """Give the reading that shows the caches to be as ``cache`` says, and what is in doubt about it."""
    try:
        reading = measure_probe(device, cache=cache)
    except UnavailableError as error:
        if cache is Cache.COLD:
            raise  # nothing could be made cold
        return None, f"nothing shows that warm is warm: {error}"
    return reading, probe_verdict(reading, cache)


@lru_cache(maxsize=4)
def _opened(name: str) -> Device:
    """Open each device once in a process: its flush buffer is as large as its caches, 0.5 GB on a server."""
    return open_device(name)


_current: ContextVar[Session | None] = ContextVar("kernelmark_session", default=None)
_default: dict[str, Any] = {}


def current_session() -> Session:
    """Give the session in use; outside any, one for the whole process that keeps its rows in memory."""
    session = _current.get()
    if session is None:
        session = _default.setdefault("session", Session())
    return session


@contextmanager
def use_session(session: Session) -> Iterator[Session]:
    """Make ``session`` the current one inside the ``with`` block; does not close it."""
    token = _current.set(session)
    try:
        yield session
    finally:
        _current.reset(token)
