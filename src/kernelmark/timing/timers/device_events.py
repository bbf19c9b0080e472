"""A pair of events around each call, for any accelerator that torch knows.

The events are queued with the work, and nothing waits for the device until the pass is over. A pair sees a
stretch of the stream: kernels, copies and the gaps between them are one number, and work that the call
leaves on another stream without joining it is not in it.

On a CUDA device each call is queued behind a short sleep, so that it is launched before the device gets to it.
Whether it was is asked of each reading: the device must not have passed its first event when its last one is
queued.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch

from kernelmark.device import Device
from kernelmark.errors import TimingError, UnavailableError
from kernelmark.timing.timer import (
    Bracket,
    Call,
    Reference,
    Samples,
    Timer,
    capture,
    do_nothing,
    run_rounds,
)
from kernelmark.timing.timers.hiding import (
    LONGEST_SLEEP_NS,
    SLEEP_REFERENCES,
    Cover,
    Sleep,
    Trial,
    choose_cover,
    launch_latency_ns,
    open_cuda_sleep,
)
from kernelmark.units import NS_PER_MS

__all__ = ["DeviceEventsTimer", "EventMaker"]

_TRIALS = 3
_TRIALS_MAY_TAKE_NS = 50 * NS_PER_MS
"""A call that takes longer is tried once each way: launching is a small part of it, or beyond hiding."""


class _Event(Protocol):
    def record(self, stream: Any, /) -> object: ...
    def elapsed_time(self, end: Any, /) -> float: ...
    def query(self) -> bool: ...


EventMaker = Callable[[], _Event]


@dataclass(slots=True)
class _Covered:
    """One call, how it is covered, and how often the device came first all the same."""

    call: Call  # kept, so that no other one takes its id
    cover: Cover
    late: int = 0
    readings: int = 0


class DeviceEventsTimer(Timer):
    """Time between two events on the device's current stream.

    An empty call reads about 1.3 µs on an H200, with the sleep or without it.

    Args:
        make_event: Makes an event that keeps time; another one is for tests, torch's own without it.
        sleep: Makes what keeps the device busy; another one is for tests.
        clock: Returns nanoseconds; another one is for tests.
        hide_launches: Whether calls are queued behind a sleep where the device has one.
    """

    name: ClassVar[str] = "device_events"
    own_references: ClassVar[tuple[Reference, ...]] = (
        *capture(torch, "Event"),
        *capture(torch.Event, "record", "elapsed_time", "query"),
        *capture(torch.accelerator, "current_stream", "synchronize"),
        *capture(torch.cuda, "synchronize"),
        *SLEEP_REFERENCES,
    )

    def __init__(
        self,
        make_event: EventMaker | None = None,
        *,
        sleep: Sleep | None = None,
        clock: Callable[[], int] | None = None,
        hide_launches: bool = True,
    ) -> None:
        if clock is not None:
            self.clock = clock
        self._given, self._given_sleep, self.hide_launches = make_event, sleep, hide_launches
        self._make_event: EventMaker = _no_event
        self._current_stream: Callable[[], object] = _no_stream
        self._device: Device | None = None
        self._starts: list[_Event] = []
        self._ends: list[_Event] = []
        self._sleep: Sleep | None = None
        self._latency_ns = 0.0
        self._covered: dict[int, _Covered] = {}

    def open(self, device: Device) -> None:
        """Read one empty pair, so that events that keep no time are found out before any reading."""
        self._device = device
        if self._given is not None:
            self._make_event = self._given
        else:
            self._make_event, self._current_stream = _torch_events(device.torch_name)
        self._prove(device)
        self._sleep = self._find_sleep(device)
        if self._sleep is not None:
            shortest = Call(self._sleep(0))
            self._latency_ns = launch_latency_ns(self._try(shortest, do_nothing, device, do_nothing))
        self.notes = (
            "device_events: a reading spans the call on its stream; gaps where the device waits for a launch"
            " are in it, and so is what the pair reads for an empty call",
            *self._why_no_sleep(device),
        )

    def close(self) -> None:
        """Let the events go."""
        self._starts, self._ends, self._sleep, self._covered = [], [], None, {}
        self._make_event, self._current_stream, self._device = _no_event, _no_stream, None

    def collect(self, call: Call, prepare: Callable[[], object], count: int) -> list[float]:
        """Queue all rounds, wait once, and return the milliseconds between the events of each pair."""
        if self._device is None:
            raise TimingError("the device_events timer is not open; time_together opens it")
        covered = self._cover(call, prepare, self._device)
        stream, synchronize = self._current_stream(), self._device.synchronize
        starts, ends = self._events(count, stream)
        firsts, lasts, passed = iter(starts), iter(ends), iter(starts)
        late = 0

        def begin() -> None:
            next(firsts).record(stream)

        def end() -> None:
            next(lasts).record(stream)

        def look() -> None:
            nonlocal late
            late += next(passed).query()

        bracket, queued = Bracket(begin, end), prepare
        if self._sleep is not None and covered is not None and covered.cover.sleep_ns:
            bracket = Bracket(begin, end, done=look)
            queued = _then(prepare, self._sleep(covered.cover.sleep_ns))
        synchronize()
        _, self.last_result = run_rounds(call, queued, count, bracket)
        synchronize()
        if covered is not None:
            covered.late += late
            covered.readings += count
        return [start.elapsed_time(end) for start, end in zip(starts, ends, strict=True)]

    def attribute(self, collected: list[float], *, count_copies: bool) -> Samples:
        """Change the unit; a reading that is no time gives no sample."""
        for elapsed in collected:
            if not math.isfinite(elapsed) or elapsed < 0:
                raise TimingError(f"a pair of events read {elapsed!r} ms, which is no time; none is given")
        readings = tuple(elapsed * NS_PER_MS for elapsed in collected)
        return Samples(latency_ns=readings, device_busy_ns=readings)

    def notes_on(self, call: Call) -> tuple[str, ...]:
        """Say whether launching is in the readings of this call."""
        found = self._covered.get(id(call))
        return () if found is None else (found.cover.note(found.late, found.readings),)

    def _cover(self, call: Call, prepare: Callable[[], object], device: Device) -> _Covered | None:
        """Find out, once for each call, how long it takes to launch and whether it waits for the device."""
        if self._sleep is None:
            return None
        found = self._covered.get(id(call))
        if found is None:
            # the sleep first, since it also wakes a device whose clock is low
            covered = self._try(call, prepare, device, self._sleep(LONGEST_SLEEP_NS))
            idle = self._try(call, prepare, device, do_nothing)
            cover = choose_cover(idle=idle, covered=covered, latency_ns=self._latency_ns)
            found = self._covered[id(call)] = _Covered(call, cover)
        return found

    def _try(
        self, call: Call, prepare: Callable[[], object], device: Device, sleep: Callable[[], object]
    ) -> list[Trial]:
        """Run a few rounds, each on a device that has nothing to do but ``sleep``."""
        synchronize, clock, stream = device.synchronize, self.clock, self._current_stream()
        (first,), (last,) = self._events(1, stream)

        def begin() -> int:
            begun = clock()
            first.record(stream)
            return begun

        def end() -> int:
            last.record(stream)
            return clock()

        bracket, prepared = Bracket(begin, end, done=synchronize), _then(_then(prepare, synchronize), sleep)
        trials: list[Trial] = []
        stop = clock() + _TRIALS_MAY_TAKE_NS
        while not trials or (len(trials) < _TRIALS and clock() < stop):
            ((begun, done),), _ = run_rounds(call, prepared, 1, bracket)
            trials.append(Trial(done - begun, first.elapsed_time(last) * NS_PER_MS))
        return trials

    def _find_sleep(self, device: Device) -> Sleep | None:
        if not self.hide_launches:
            return None
        if self._given_sleep is not None or device.kind != "cuda":
            return self._given_sleep
        return open_cuda_sleep(device, self._make_event, self._current_stream)

    def _why_no_sleep(self, device: Device) -> tuple[str, ...]:
        if self._sleep is not None:
            return ()
        if not self.hide_launches:
            return (
                "device_events: no call is queued behind a sleep, so launching is in its reading, as asked",
            )
        return (
            f"device_events: {device.torch_name} has no sleep to queue a call behind, so launching is in the reading"
            " wherever the host is slower than the device",
        )

    def _events(self, count: int, stream: object) -> tuple[list[_Event], list[_Event]]:
        """Return ``count`` pairs, kept from pass to pass.

        A new event is recorded once here: the driver creates it on its first record, which would otherwise
        lie between a call and its end.
        """
        while len(self._starts) < count:
            for events in (self._starts, self._ends):
                events.append(self._make_event())
                events[-1].record(stream)
        return self._starts[:count], self._ends[:count]

    def _prove(self, device: Device) -> None:
        """Read one empty pair before any reading is trusted."""
        device.synchronize()  # an error that was there before is not the events' fault
        try:
            self.collect(Call(do_nothing), do_nothing, 1)
        except (NotImplementedError, RuntimeError) as error:
            raise UnavailableError(
                f"torch has no events that keep time on {device.torch_name} ({error});"
                " use the host timer there"
            ) from error


def _torch_events(name: str) -> tuple[EventMaker, Callable[[], object]]:
    where = torch.device(name)

    def make_event() -> torch.Event:
        return torch.Event(device=where, enable_timing=True)

    def current_stream() -> torch.Stream:
        return torch.accelerator.current_stream(where)

    return make_event, current_stream


def _no_event() -> _Event:
    raise TimingError("the device_events timer is not open; time_together opens it")


def _no_stream() -> None:
    """Stand for the stream of a timer that is closed, or whose events need none."""


def _then(first: Callable[[], object], second: Callable[[], object]) -> Callable[[], None]:
    def both() -> None:
        first()
        second()

    return both
