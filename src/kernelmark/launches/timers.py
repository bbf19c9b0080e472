"""The timers by the names of this way in: which instrument each is, its budgets, and which one is the default.

What an instrument does is in ``kernelmark.timing.timers``; this is one table over it and one decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Literal

from kernelmark.device import Device
from kernelmark.errors import UnavailableError, UsageError
from kernelmark.timing import TIMERS, Timer, open_timer
from kernelmark.timing.timer import SYNCHRONOUS_KINDS

__all__ = [
    "DISTRIBUTED_TIMERS",
    "LAUNCH_TIMERS",
    "Choice",
    "LaunchTimer",
    "choose_timer",
    "find_timer",
    "open_chosen",
]


@dataclass(frozen=True, slots=True)
class LaunchTimer:
    """One timer as callers of ``bench`` know it. Its default budgets are written here and nowhere else."""

    name: str
    instrument: str
    """Its name among ``kernelmark.timing.TIMERS``."""
    reads: Literal["device_busy_ns", "latency_ns"]
    """Which reading is the launch's time."""
    warmup_ms: float | None = 25.0
    repeat_ms: float = 100.0
    takes: tuple[str, ...] = ("warmup", "repeat")
    """Which parameters set its budgets; the last one sets ``repeat_ms``."""
    flush_in_estimate: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the instrument is made with."""


LAUNCH_TIMERS: tuple[LaunchTimer, ...] = (
    # the wall of each call, as its specification has it: a host that sleeps in the call is in the reading
    LaunchTimer("event", "device_events", "latency_ns", settings={"hide_launches": False}),
    LaunchTimer("proton", "proton", "device_busy_ns"),
    LaunchTimer(
        "cudagraph_proton",
        "cudagraph_proton",
        "device_busy_ns",
        warmup_ms=None,
        repeat_ms=20.0,
        takes=("cudagraph_rep",),
        flush_in_estimate=False,
    ),
    LaunchTimer("kineto", "kineto", "latency_ns"),
    LaunchTimer("cupti", "cupti", "device_busy_ns"),
    # the estimate holds the flush, which takes 20 to 60 ms on a CPU that reads 480 MiB: 100 ms would be 2 samples
    LaunchTimer("host", "host", "latency_ns", repeat_ms=1000.0),
)

DISTRIBUTED_TIMERS = ("kineto", "host")
"""The only ones with several ranks: the first on NVIDIA devices, the second on everything else."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A timer, and why it is this one."""

    timer: LaunchTimer
    reason: str


def find_timer(name: object) -> LaunchTimer:
    """Return the timer of that name.

    Raises:
        UsageError: there is none; the message lists those there are.
    """
    table = {each.name: each for each in LAUNCH_TIMERS}
    if isinstance(name, str) and name in table:
        return table[name]
    near = get_close_matches(name, table, n=1) if isinstance(name, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UsageError(f"timer={name!r}: give None or one of {', '.join(map(repr, table))}{hint}")


def choose_timer(asked: LaunchTimer | None, device: Device, *, distributed: bool) -> Choice:
    """Decide which timer reads the launches; the only place where a default is chosen.

    Raises:
        UsageError: the one asked for does not go with several ranks on this device.
    """
    nvidia = device.kind == "cuda" and device.default_timer != "device_events"
    if distributed:
        name = DISTRIBUTED_TIMERS[0] if nvidia else DISTRIBUTED_TIMERS[1]
        if asked is not None and asked.name != name:
            raise UsageError(
                f"timer={asked.name!r} with distributed= on {device.torch_name}: give None or {name!r}, the only"
                " timer for several ranks there"
            )
    elif asked is None:
        name = "proton" if nvidia else "host" if device.kind in SYNCHRONOUS_KINDS else "event"
    else:
        return Choice(asked, "asked for")
    return Choice(find_timer(name), "asked for" if asked else _why(name, device))


def open_chosen(timer: LaunchTimer, device: Device) -> Timer:
    """Make the instrument; whether it works here is found out when it is opened.

    Raises:
        UnavailableError: it does not serve this device, or needs what is not installed.
    """
    if timer.instrument not in {each.name for each in TIMERS}:
        known = {each.name for each in TIMERS}
        usable = ", ".join(repr(each.name) for each in LAUNCH_TIMERS if each.instrument in known)
        raise UnavailableError(
            f"timer={timer.name!r}: this kernelmark has no instrument {timer.instrument!r}; give {usable}"
        )
    return open_timer(timer.instrument, device, **timer.settings)


def _why(name: str, device: Device) -> str:
    if name != "host":
        return f"the default on {device.torch_name}"
    if device.kind in SYNCHRONOUS_KINDS:
        return "no accelerator is in use, so the host's clock is read: wall time, not kernel time"
    return f"no other timer spans several ranks on {device.torch_name}: wall time until the device is done"
