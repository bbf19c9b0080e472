"""Hides launches: what keeps a device busy, and how long it must be, so that a whole call is queued before it starts.

The one place where ``torch.cuda._sleep`` is called: one thread that counts the clock and touches no memory. torch has
no public call for it; its own tests use this one. It counts cycles, so how many of them make a nanosecond is read
where a sleep of known length is wanted. How long it must be is decided from trials of the call, which is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch

from kernelmark.device import Device
from kernelmark.errors import TimingError, UnavailableError
from kernelmark.timing.timer import Reference, capture
from kernelmark.units import NS_PER_MS, format_time

__all__ = [
    "LAUNCH_CYCLES",
    "LONGEST_SLEEP_NS",
    "MEETING_CYCLES",
    "SLEEP_REFERENCES",
    "Cover",
    "Sleep",
    "Trial",
    "choose_cover",
    "launch_latency_ns",
    "open_cuda_sleep",
    "queue_sleep",
]

MEETING_CYCLES = 20_000_000
"""About 10 ms (10.1 ms at the 1980 MHz of an H200): hides the meeting of several hosts and a launch."""

LAUNCH_CYCLES = 40_000_000
"""20 ms at 2 GHz: longer than launching a call takes, also where it is one of hundreds of kernels."""

Sleep = Callable[[float], Callable[[], object]]
"""Takes nanoseconds, and gives what queues a sleep of that length."""

SLEEP_REFERENCES: tuple[Reference, ...] = (
    capture(torch.cuda, "_sleep") if hasattr(torch.cuda, "_sleep") else ()
)

_CYCLES = 1_000_000
"""0.5 ms at 1.98 GHz, the clock of an H200 at work; 3 ms at the 345 MHz of an idle one."""
_READINGS = 8
_STEADY = 1.05


def queue_sleep(cycles: int) -> None:
    """Let the current CUDA device sleep on its current stream; the host does not wait.

    Raises:
        UnavailableError: this torch has no such sleep.
    """
    if not SLEEP_REFERENCES:
        raise UnavailableError(
            f"torch {torch.__version__} has no sleep on a CUDA device; use a build with CUDA"
        )
    SLEEP_REFERENCES[0].value(cycles)  # type: ignore[operator]


def open_cuda_sleep(
    device: Device, make_event: Callable[[], Any], current_stream: Callable[[], Any]
) -> Sleep | None:
    """Give the sleep of one CUDA device; ``None`` where none of known length can be had.

    Spins until two in a row take the same time, since an idle device's clock is low at first. The fastest clock
    counts: at a lower one a sleep is longer than it was asked for, and never shorter.
    """
    if not SLEEP_REFERENCES:
        return None
    there = torch.cuda.device(
        device.torch_name
    )  # the spin goes to the current device, which may be another one
    start, end, times = make_event(), make_event(), []
    for _ in range(_READINGS):
        stream = current_stream()
        start.record(stream)
        with there:
            queue_sleep(_CYCLES)
        end.record(stream)
        device.synchronize()
        times.append(start.elapsed_time(end) * NS_PER_MS)
        if len(times) > 1 and max(times[-2:]) < _STEADY * min(times[-2:]):
            break
    fastest_ns = min(times)
    if not fastest_ns > 0:
        return None
    return partial(_sleep_of, there, _CYCLES / fastest_ns)


def _sleep_of(there: torch.cuda.device, cycles_per_ns: float, ns: float) -> Callable[[], object]:
    cycles = max(1, round(ns * cycles_per_ns))

    def sleep() -> None:
        with there:
            queue_sleep(cycles)

    return sleep


# --- how long ---------------------------------------------------------------------------------------

LONGEST_SLEEP_NS = 2 * NS_PER_MS
"""200 samples then cost 0.4 s. A call that the host takes longer to launch is more launching than anything else."""

_FACTOR = 2
_MARGIN_NS = 50_000
"""Twice the host's time, and as much again as a scheduler takes a core away for now and then."""

_LATENCY_FACTOR = 2
_LATENCY_MARGIN_NS = 10_000
"""By how much more than was seen once a launch may come later, before work counts as missing from a reading."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One call: the host's time from before its first event until after its second, and what the pair read."""

    host_ns: float
    read_ns: float


@dataclass(frozen=True, slots=True)
class Cover:
    """How one call is covered."""

    host_ns: float
    """Of launching it, on a device that had nothing else to do."""
    sleep_ns: float
    """0 for none."""
    waits: bool = False
    """Whether the call itself waits for the device."""

    def note(self, late: int, count: int) -> str:
        """Say what a reading of this call holds, where the device came first in ``late`` of ``count`` readings."""
        if self.waits:
            return (
                "device_events: the call waits for the device by itself, so what it launches after its wait, and the"
                f" way there and back, is in the reading; before it, the device sleeps {format_time(self.sleep_ns, 2)}"
            )
        if not self.sleep_ns:
            return (
                f"device_events: the host takes {format_time(self.host_ns, 2)} to launch the call, too long to hide"
                f" behind a sleep of at most {format_time(LONGEST_SLEEP_NS, 2)}: launching is in the reading"
            )
        told = (
            f"device_events: launching ({format_time(self.host_ns, 2)} on the host) is hidden behind a sleep of"
            f" {format_time(self.sleep_ns, 2)} on the device"
        )
        return told + (f", but for {late} of {count} readings" if late else "")


def launch_latency_ns(idle: Sequence[Trial]) -> float:
    """Give what passes from a launch to its start on an idle device, from trials of a kernel that takes no time."""
    return max(0.0, *(trial.read_ns - trial.host_ns for trial in idle))


def choose_cover(*, idle: Sequence[Trial], covered: Sequence[Trial], latency_ns: float) -> Cover:
    """Choose the sleep before each reading of a call.

    Args:
        idle: The call on a device that had nothing else to do.
        covered: The same call behind a sleep of ``LONGEST_SLEEP_NS``.
        latency_ns: What ``launch_latency_ns`` gave on this device.

    Raises:
        TimingError: behind the sleep the call reads far less than its work can take: it does not wait for what is
            queued before it.
    """
    host_ns = median(trial.host_ns for trial in idle)
    most_before_ns = host_ns + _LATENCY_FACTOR * latency_ns + _LATENCY_MARGIN_NS
    work_ns = min(trial.read_ns for trial in idle) - most_before_ns
    read_ns = max(trial.read_ns for trial in covered)
    if 2 * read_ns < work_ns:
        raise TimingError(
            f"behind queued work the call reads {format_time(read_ns, 3)}, and at least {format_time(work_ns, 3)} on an"
            " idle device: it uses a stream that does not wait for the current one, so part of it is over before its"
            " reading begins. Let it wait (side.wait_stream(current)), or ask for cupti, which follows all streams"
        )
    longer_ns = min(trial.host_ns for trial in covered) - min(trial.host_ns for trial in idle)
    waits = longer_ns > LONGEST_SLEEP_NS / 2
    if not waits and host_ns + _MARGIN_NS > LONGEST_SLEEP_NS:
        return Cover(host_ns, 0.0)
    return Cover(host_ns, min(_FACTOR * host_ns + _MARGIN_NS, LONGEST_SLEEP_NS), waits)
