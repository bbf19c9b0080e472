"""A pair of events around each call, for any accelerator that torch knows.

The events are queued with the work, and nothing waits for the device until the pass is over. A pair sees a
stretch of the stream: kernels, copies and the gaps between them are one number, and work that the call
leaves on another stream without joining it is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import torch

from kernelmark.device import Device
from kernelmark.errors import TimingError, UnavailableError
from kernelmark.timing.references import Reference, capture
from kernelmark.timing.timer import Call, Samples, Timer
from kernelmark.units import NS_PER_MS

__all__ = ["DeviceEventsTimer", "EventMaker"]


class _Event(Protocol):
    def record(self, stream: Any, /) -> object: ...
    def elapsed_time(self, end: Any, /) -> float: ...


EventMaker = Callable[[], _Event]


class DeviceEventsTimer(Timer):
    """Time between two events on the device's current stream.

    Args:
        make_event: Makes an event that keeps time; another one is for tests, torch's own without it.
    """

    name: ClassVar[str] = "device_events"
    own_references: ClassVar[tuple[Reference, ...]] = (
        *capture(torch, "Event"),
        *capture(torch.Event, "record", "elapsed_time"),
        *capture(torch.accelerator, "current_stream", "synchronize"),
        *capture(torch.cuda, "synchronize"),
    )

    def __init__(self, make_event: EventMaker | None = None) -> None:
        self._given = make_event
        self._make_event: EventMaker = _no_event
        self._current_stream: Callable[[], object] = _no_stream
        self._device: Device | None = None
        self._starts: list[_Event] = []
        self._ends: list[_Event] = []

    def open(self, device: Device) -> None:
        """Read one empty pair, so that events that keep no time are found out before any reading."""
        self._device = device
        if self._given is not None:
            self._make_event = self._given
        else:
            self._make_event, self._current_stream = _torch_events(device.torch_name)
        self._prove(device)
        self.notes = (
            "device_events: a reading spans the call on its stream; gaps where the device waits for a launch"
            " are in it, and so is what the pair reads for an empty call",
        )

    def close(self) -> None:
        """Let the events go."""
        self._starts, self._ends = [], []
        self._make_event, self._current_stream, self._device = _no_event, _no_stream, None

    def collect(self, call: Call, prepare: Callable[[], object], count: int) -> list[float]:
        """Queue all rounds, wait once, and return the milliseconds between the events of each pair."""
        if self._device is None:
            raise TimingError("the device_events timer is not open; time_together opens it")
        stream, synchronize = self._current_stream(), self._device.synchronize
        starts, ends = self._events(count, stream)
        run, args, result = call.run, call.args, None
        synchronize()
        for start, end in zip(starts, ends, strict=True):
            result = None
            prepare()
            start.record(stream)
            result = run(*args)
            end.record(stream)
        synchronize()
        self.last_result = result
        return [start.elapsed_time(end) for start, end in zip(starts, ends, strict=True)]

    def attribute(self, collected: list[float], *, count_copies: bool) -> Samples:
        """Change the unit; a reading that is no time gives no sample."""
        for elapsed in collected:
            if not math.isfinite(elapsed) or elapsed < 0:
                raise TimingError(f"a pair of events read {elapsed!r} ms, which is no time; none is given")
        readings = tuple(elapsed * NS_PER_MS for elapsed in collected)
        return Samples(latency_ns=readings, device_busy_ns=readings)

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
            self.collect(Call(_nothing), _nothing, 1)
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


def _nothing() -> None:
    """Do nothing."""
