"""One run: the device, the options, and the rows made so far.

A session is where rows go. It opens its device when something first needs it, and its record when the
first row is made, so that a run that makes nothing leaves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Literal

from kernelmark.calibration import profile_for
from kernelmark.device import Device, Flusher, measure_probe, open_device, probe_verdict
from kernelmark.errors import ProfileError, RecordError, UnavailableError, UsageError
from kernelmark.harness.provenance import environment, now, run_name
from kernelmark.isolation import turn_to_time
from kernelmark.records import (
    FORMAT_VERSION,
    RECORDS_FILE,
    Cache,
    DeviceRecord,
    Note,
    NoteKind,
    ProbeReading,
    Protocol,
    Row,
    RunEnd,
    RunHeader,
    RunOutcome,
    RunWriter,
    StoredRun,
    finished_rows,
    read_run,
    refuse_other_caches,
    refuse_unlike,
    rewrite,
)
from kernelmark.roofline import Profile
from kernelmark.timing import Budget, Timer, TimingOptions, Turns, open_timer

__all__ = ["Session", "SessionOptions"]


@dataclass(frozen=True, slots=True, init=False)
class SessionOptions:
    """What a run is asked to do.

    Args:
        device: ``auto`` for the best there is, or a name such as ``cpu``, ``cuda:1``.
        timer: An instrument or its name, or ``None`` for the device's own.
        verify_only: Check, and time nothing.
        require_baselines: Fail where a baseline is unavailable.
        cache: The state of the caches when a timed call starts.
        budget: How many samples to take.
        out: Folder to keep the run in; ``None`` keeps it in memory.
        ceilings: Whether the run needs the device's ceilings, which a CPU measures once; without a statement
            of work they serve nothing.
        notes: What a reader must know of the whole run.
        other_values: Whether an implementation is called on other values at the same addresses before its check;
            a second check of the same code may leave that to the first.
        call_unchecked: Whether an implementation whose answer nothing can be held against is called before it is
            timed, and after.
        turns: Rounds of turns in place of interleaved blocks, and in place of ``budget``.

    Raises:
        UsageError: a value that no run could use.
    """

    device: str
    timer: Timer | str | None
    verify_only: bool
    require_baselines: bool
    cache: Cache
    budget: Budget
    out: Path | None
    ceilings: bool
    notes: tuple[str, ...]
    other_values: bool
    call_unchecked: bool
    turns: Turns | None

    def __init__(
        self,
        *,
        device: str = "auto",
        timer: Timer | str | None = None,
        verify_only: bool = False,
        require_baselines: bool = False,
        cache: Cache | Literal["cold", "warm"] = Cache.COLD,
        budget: Budget | None = None,
        out: str | PathLike[str] | None = None,
        ceilings: bool = True,
        notes: tuple[str, ...] = (),
        other_values: bool = True,
        call_unchecked: bool = True,
        turns: Turns | None = None,
    ) -> None:
        if cache not in list(Cache):
            there_are = " or ".join(repr(each.value) for each in Cache)
            raise UsageError(f"cache={cache!r}: the caches are {there_are} when a timed call starts")
        if budget is not None and not isinstance(budget, Budget):
            raise UsageError(f"budget={budget!r}: give a Budget, such as Budget(sample_ms=200)")
        given = {
            "device": device,
            "timer": timer,
            "verify_only": verify_only,
            "require_baselines": require_baselines,
            "cache": Cache(cache),
            "budget": budget or Budget(),
            "out": None if out is None else Path(out),
            "ceilings": ceilings,
            "notes": notes,
            "other_values": other_values,
            "call_unchecked": call_unchecked,
            "turns": turns,
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)


class Session:
    """One run, from its first row to its end mark.

    Args:
        options: What is asked for.
        command: The command line, for the record.
        header: The description of a run that another process records: its rows are kept here, and written there.
        profile: That run's ceilings.
        device: One that is open already, in place of the one that the options name.
    """

    def __init__(
        self,
        options: SessionOptions | None = None,
        *,
        command: tuple[str, ...] = (),
        header: RunHeader | None = None,
        profile: Profile | None = None,
        device: Device | None = None,
    ) -> None:
        self.options = options or SessionOptions()
        self.command = command
        self.rows: list[Row] = []
        self.header = header
        self.profile = profile
        """The ceilings of the device, known once the run has started; ``None`` where there are none."""
        self._device = device
        self._writer: RunWriter | None = None
        self._closed = False
        self._kept: dict[tuple[str | None, str], tuple[Row, ...]] = {}

    @classmethod
    def resume(cls, folder: Path, options: SessionOptions, *, command: tuple[str, ...] = ()) -> Session:
        """Go on with the run in ``folder``: what it has is kept, and what failed is measured again.

        Raises:
            RecordError: there is no run, it was made under other conditions than this one, or it cannot be written.
        """
        stored = read_run(folder)
        this = cls(options, command=command)
        header = this._describe(None)
        refuse_unlike(stored.header, header, advice="ask for what it was made with, or start another run")
        revision = header.environment.git_revision
        note = Note.of(NoteKind.RESUMED, at=header.started, revision=revision)
        session = cls.of(rewrite(stored, finished_rows(stored), note), options)
        session.profile = this.profile
        for row in session.rows:
            case = row.op, row.case
            session._kept[case] = (*session._kept.get(case, ()), row)
        return session

    def kept(self, op: str | None, case: str, names: Iterable[str]) -> tuple[Row, ...]:
        """Give the rows that a run which is gone on with has of a case.

        Raises:
            UsageError: they are not of the implementations ``names``.
        """
        rows, wanted = self._kept.get((op, case), ()), list(names)
        held = [row.implementation for row in rows]
        if held and set(held) != set(wanted):
            raise UsageError(
                f"{case}: the run that is gone on with compared {', '.join(held)}, and this compares"
                f" {', '.join(wanted)}; start another run"
            )
        return rows

    @classmethod
    def of(cls, run: StoredRun, options: SessionOptions) -> Session:
        """Give the session of a stored run, with its header and rows; one that has ended can only be looked at.

        Raises:
            RecordError: it was cut short, and cannot be written.
        """
        session = cls(options, command=run.header.command, header=run.header)
        session.rows = list(run.rows)
        if run.end is None:
            session._writer = RunWriter.reopen(run)
        else:
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
        timer = self.options.timer
        return timer.name if isinstance(timer, Timer) else timer or self.device.default_timer

    def open_timer(self) -> Timer:
        """Give the instrument; whether it works here is found out when it is opened.

        Raises:
            UsageError: there is no timer of that name.
            UnavailableError: it does not serve this kind of device.
        """
        timer = self.options.timer
        return timer if isinstance(timer, Timer) else open_timer(timer, self.device)

    @property
    def folder(self) -> Path | None:
        """Where the run is kept, once it holds something."""
        return self._writer.path.parent if self._writer else None

    def timing_options(self, *, count_copies: bool) -> TimingOptions:
        """Give the timing options of this run for a case with this copy policy."""
        options = self.options
        return TimingOptions(options.budget, options.cache, count_copies, options.turns)

    def require_usable(self) -> None:
        """Find out before the first case whether the device, the timer and the folder can be had.

        Raises:
            UsageError: no timer of that name serves the device.
            UnavailableError: the device cannot be had.
            RecordError: the folder holds a run already, or cannot be made.
        """
        if not self.options.verify_only:
            self.open_timer()
        if self.header is None and self.options.out is not None:
            held = self.options.out / RECORDS_FILE
            if held.exists():
                raise RecordError(f"{held} already holds a run; choose another output folder")
            above = next(each for each in held.parents if each.exists())
            if not above.is_dir() or not os.access(above, os.W_OK):
                raise RecordError(
                    f"cannot make the folder {held.parent} in {above}; choose another output folder"
                )
        self.device.describe()

    def describe_as(self, header: RunHeader) -> None:
        """Start the run as another process has described it, which measures what is recorded here.

        Raises:
            RecordError: the folder cannot be written.
        """
        if self.header is None:
            if self.options.out is not None:
                self._writer = RunWriter.create(self.options.out, header)
            self.header = header

    def start(self, home: Path | None = None) -> RunHeader:
        """Describe the run, and start its record where it has a folder; does nothing the second time.

        Args:
            home: Folder of what is measured, whose revision is recorded; the working folder without one.

        Raises:
            RecordError: the folder cannot be written.
            UnavailableError: the device cannot be had.
        """
        if self.header is None:
            header = self._describe(home)
            if self.options.out is not None:
                self._writer = RunWriter.create(self.options.out, header)
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

    def _describe(self, home: Path | None) -> RunHeader:
        options = self.options
        device, record = self.device, self.device.describe()
        probe, notes = self._measure_device(device, record)
        return RunHeader(
            format_version=FORMAT_VERSION,
            run=run_name(options.out),
            started=now(),
            command=self.command,
            device=record,
            environment=environment(home),
            protocol=self._protocol(),
            probe=probe,
            notes=tuple(map(Note.free, filter(None, (*options.notes, *notes)))),
        )

    def _protocol(self) -> Protocol:
        options, budget = self.options, self.options.budget
        told = {
            "blocks": budget.blocks,
            "warmup_ms": budget.warmup_ms,
            "sample_ms": budget.sample_ms,
            "prepare_ms": budget.prepare_ms,
            "min_count": budget.min_count,
            "max_count": budget.max_count,
        }
        return Protocol(
            timer=self.timer_name,
            cache=options.cache,
            verify_only=options.verify_only,
            **(options.turns.told() if options.turns else told),
        )

    def _measure_device(
        self, device: Device, record: DeviceRecord
    ) -> tuple[ProbeReading | None, tuple[str, ...]]:
        """Read the caches' probe, and look the ceilings up; a run that times nothing needs neither."""
        if self.options.verify_only:
            return None, ()
        with turn_to_time():
            turns = self.options.turns
            probe, doubt = _probe(device, self.options.cache, turns.flush if turns else None)
            return probe, (doubt, *self._find_profile(record))


def _probe(device: Device, cache: Cache, flush: Flusher | None) -> tuple[ProbeReading | None, str]:
    """Give the reading that shows the caches to be as ``cache`` says, and what is in doubt about it."""
    try:
        reading = measure_probe(device, cache=cache, flush=flush)
    except UnavailableError as error:
        if cache is Cache.COLD:
            raise  # nothing could be made cold
        return None, f"nothing shows that warm is warm: {error}"
    return reading, probe_verdict(reading, cache)


@lru_cache(maxsize=4)
def _opened(name: str) -> Device:
    """Open each device once in a process: its flush buffer is as large as its caches, 0.5 GB on a server."""
    return open_device(name)
