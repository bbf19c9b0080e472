"""Which timers there are, and which device each one serves.

A timer is one file here and one line in ``TIMERS``. It is imported when it is asked for and not before.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal

from kernelmark.device import Device
from kernelmark.errors import UnavailableError, UsageError
from kernelmark.text import suggestion
from kernelmark.timing.timer import SYNCHRONOUS_KINDS, Timer

__all__ = ["TIMERS", "TimerEntry", "open_timer"]


@dataclass(frozen=True, slots=True)
class TimerEntry:
    """One timer: its name, where its class is, which devices it serves, and what it reads."""

    name: str
    target: str
    serves: Literal["any device", "accelerators", "NVIDIA devices"]
    reads: str

    def serves_kind(self, kind: str) -> bool:
        """Whether the timer works on devices of this kind."""
        if self.serves == "NVIDIA devices":
            return kind == "cuda"
        return self.serves == "any device" or kind not in SYNCHRONOUS_KINDS

    @property
    def uses_profiler(self) -> bool:
        """Whether it reads through a profiler, of which one process can use one at a time."""
        return self.serves == "NVIDIA devices"

    def load(self) -> type[Timer]:
        """Import the timer's module and return its class."""
        module, _, name = self.target.partition(":")
        return getattr(importlib.import_module(module), name)


TIMERS: tuple[TimerEntry, ...] = (
    TimerEntry(
        "host",
        "kernelmark.timing.timers.host:HostTimer",
        "any device",
        "the host's clock around the call, and around the wait for the device where there is one to wait for",
    ),
    TimerEntry(
        "cupti",
        "kernelmark.timing.timers.cupti:CuptiTimer",
        "NVIDIA devices",
        "the device's own records of each kernel, copy and memset, each attributed to its call",
    ),
    TimerEntry(
        "kineto",
        "kernelmark.timing.timers.kineto:KinetoTimer",
        "NVIDIA devices",
        "the span of each call's work on the device over all streams, from torch.profiler",
    ),
    TimerEntry(
        "proton",
        "kernelmark.timing.timers.proton:ProtonTimer",
        "NVIDIA devices",
        "the sum of each call's kernel times, from Triton's Proton",
    ),
    TimerEntry(
        "cudagraph_proton",
        "kernelmark.timing.timers.proton:CudagraphProtonTimer",
        "NVIDIA devices",
        "the same, over replays of a CUDA graph that holds all calls of a pass",
    ),
    TimerEntry(
        "device_events",
        "kernelmark.timing.timers.device_events:DeviceEventsTimer",
        "accelerators",
        "a pair of events around each call in the device's own queue",
    ),
)


_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    # the wall of each call, as its specification has it: a host that sleeps in the call is in the reading
    "event": ("device_events", {"hide_launches": False}),
}
"""Other names of an instrument, and what it is made with under them."""


def open_timer(name: str | None, device: Device, **settings: Any) -> Timer:
    """Return the timer called ``name`` for ``device``, made with ``settings``; ``None`` is the device's own default.

    There is no other choice than the one asked for: a timer that does not serve the device is an error.

    Raises:
        UsageError: there is no timer of that name.
        UnavailableError: it does not serve this kind of device.
    """
    asked = device.default_timer if name is None else name
    asked, variant = _VARIANTS.get(asked, (asked, {}))
    entries = {entry.name: entry for entry in TIMERS}
    if asked not in entries:
        known = (*entries, *_VARIANTS)
        raise UsageError(
            f"there is no timer {asked!r}; {suggestion(asked, known, there_are='the timers are')}"
        )
    entry = entries[asked]
    if not entry.serves_kind(device.kind):
        usable = ", ".join(each.name for each in TIMERS if each.serves_kind(device.kind))
        raise UnavailableError(
            f"the timer {asked!r} serves {entry.serves}, and {device.torch_name} is of kind {device.kind!r};"
            f" use {usable}"
        )
    return entry.load()(**variant, **settings)
