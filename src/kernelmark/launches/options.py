"""What a caller of ``bench`` may ask for, checked before anything runs, and the timers by the names of this way in.

What an instrument does is in ``kernelmark.timing.timers``; here is one table over it, with the default budgets, and the
one decision which of them is the default.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

from kernelmark.device import Device
from kernelmark.errors import UsageError
from kernelmark.launches.ranks import DistributedBenchContext
from kernelmark.text import suggestion
from kernelmark.timing import BudgetedCounts
from kernelmark.timing.timer import SYNCHRONOUS_KINDS

__all__ = [
    "DISTRIBUTED_TIMERS",
    "LAUNCH_TIMERS",
    "LaunchOptions",
    "LaunchPlan",
    "LaunchTimer",
    "choose_timer",
    "find_timer",
    "make_plan",
]

Launch = Callable[[], object]
Builder = Callable[[], Launch]

BUDGETS = ("warmup", "repeat", "cudagraph_rep")


@dataclass(frozen=True, slots=True)
class LaunchTimer:
    """One timer as callers of ``bench`` know it. Its default budgets are written here and nowhere else."""

    name: str
    reads: Literal["device_busy_ns", "latency_ns"]
    """Which reading is the launch's time."""
    warmup_ms: float | None = 25.0
    repeat_ms: float = 100.0
    takes: tuple[str, ...] = ("warmup", "repeat")
    """Which parameters set its budgets; the last one sets ``repeat_ms``."""
    flush_in_estimate: bool = True


LAUNCH_TIMERS: tuple[LaunchTimer, ...] = (
    LaunchTimer("event", "latency_ns"),
    LaunchTimer("device_events", "latency_ns"),
    LaunchTimer("proton", "device_busy_ns"),
    LaunchTimer(
        "cudagraph_proton", "device_busy_ns", None, 20.0, ("cudagraph_rep",), flush_in_estimate=False
    ),
    LaunchTimer("kineto", "latency_ns"),
    LaunchTimer("cupti", "device_busy_ns"),
    # the estimate holds the flush, which takes 20 to 60 ms on a CPU that reads 480 MiB: 100 ms would be 2 samples
    LaunchTimer("host", "latency_ns", repeat_ms=1000.0),
)

DISTRIBUTED_TIMERS = ("kineto", "host")
"""The only ones with several ranks: the first on NVIDIA devices, the second on everything else."""


def find_timer(name: object) -> LaunchTimer:
    """Return the timer of that name.

    Raises:
        UsageError: there is none; the message lists those there are.
    """
    table = {each.name: each for each in LAUNCH_TIMERS}
    if isinstance(name, str) and name in table:
        return table[name]
    raise UsageError(f"timer={name!r}: {suggestion(str(name), table, there_are='give None or one of')}")


def choose_timer(asked: LaunchTimer | None, device: Device, *, distributed: bool) -> tuple[LaunchTimer, str]:
    """Decide which timer reads the launches, and say why it is this one; the only place where a default is chosen.

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
    else:
        name = "proton" if nvidia else "host" if device.kind in SYNCHRONOUS_KINDS else "event"
    if asked is not None:
        return asked, "asked for"
    if name != "host":
        why = f"the default on {device.torch_name}"
    elif device.kind in SYNCHRONOUS_KINDS:
        why = "no accelerator is in use, so the host's clock is read: wall time, not kernel time"
    else:
        why = f"no other timer spans several ranks on {device.torch_name}: wall time until the device is done"
    return find_timer(name), why


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The values that are not launches.

    Args:
        warmup: Budget of the warm-up in ms; ``None`` for the timer's own.
        repeat: Budget of the samples in ms; ``None`` for the timer's own.
        cudagraph_rep: Budget of the calls unrolled into a graph, in ms; ``None`` for the timer's own.
        timer: A name; ``None`` for the device's default.
        cooldown_s: Pause right before each implementation in each round.
        rounds: Independent measurements of everything.
    """

    warmup: float | None = None
    repeat: float | None = None
    cudagraph_rep: float | None = None
    timer: str | None = None
    cooldown_s: float = 1.0
    rounds: int = 1

    def __post_init__(self) -> None:
        if self.warmup is not None and not (_is_number(self.warmup) and self.warmup >= 0):
            raise UsageError(f"warmup={self.warmup!r}: give a number of milliseconds of at least 0, or None")
        for name in ("repeat", "cudagraph_rep"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and value > 0):
                raise UsageError(f"{name}={value!r}: give a number of milliseconds above 0, or None")
        if not (_is_number(self.cooldown_s) and self.cooldown_s >= 0):
            raise UsageError(f"cooldown_s={self.cooldown_s!r}: give a number of seconds of at least 0")
        if isinstance(self.rounds, bool) or not isinstance(self.rounds, int) or self.rounds < 1:
            raise UsageError(f"rounds={self.rounds!r}: give a whole number of at least 1")
        if self.timer is not None:
            find_timer(self.timer)

    @property
    def asked_timer(self) -> LaunchTimer | None:
        """The timer that was asked for."""
        return None if self.timer is None else find_timer(self.timer)

    def given_budgets(self) -> dict[str, float]:
        """Return the budgets that were given, by parameter."""
        return {name: value for name in BUDGETS if (value := getattr(self, name)) is not None}

    def counts(self, timer: LaunchTimer) -> BudgetedCounts:
        """Return the effective budgets: those given that ``timer`` takes, its own for the others."""
        given = {name: value for name, value in self.given_budgets().items() if name in timer.takes}
        return BudgetedCounts(
            warmup_ms=given.get("warmup", timer.warmup_ms),
            repeat_ms=given.get(timer.takes[-1], timer.repeat_ms),
            flush_in_estimate=timer.flush_in_estimate,
        )

    def ignored(self, timer: LaunchTimer) -> dict[str, float]:
        """Return the budgets that were given and that ``timer`` has no use for."""
        return {name: value for name, value in self.given_budgets().items() if name not in timer.takes}


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One call of ``bench``, checked."""

    funcs: dict[str, Launch]
    references: dict[str, Builder]
    prepare: dict[str, Launch]
    options: LaunchOptions
    distributed: DistributedBenchContext | None = None
    reference: Launch | None = None
    tolerance: Any = None
    out: str | None = None


def make_plan(
    funcs: object,
    *,
    references: object = None,
    prepare: object = None,
    distributed: object = None,
    reference: object = None,
    tolerance: object = None,
    out: object = None,
    options: LaunchOptions,
) -> LaunchPlan:
    """Check everything that was asked for; nothing is launched or built.

    Raises:
        UsageError: a value that no run could satisfy; the message names parameter, value and what is expected.
    """
    ours = _named_callables("funcs", funcs, "a callable that takes no argument")
    if not ours:
        raise UsageError('funcs={}: give at least one launch, such as {"mine": launch}')
    builders = _named_callables("references", references, "a builder: a callable that returns the launch")
    for name in builders:
        if name in ours:
            raise UsageError(
                f"references[{name!r}]: one of funcs has this name too; give the reference another one"
            )
    resets = _named_callables("prepare", prepare, "a callable that takes no argument")
    for name in resets:
        if name not in ours and name not in builders:
            known = ", ".join(repr(each) for each in (*ours, *builders))
            raise UsageError(f"prepare[{name!r}]: there is no such implementation; there are {known}")
    if reference is not None and not callable(reference):
        raise UsageError(
            f"reference={shown(reference)}: give a callable that returns the right answer, or None"
        )
    if tolerance is not None and reference is None:
        raise UsageError(
            f"tolerance={shown(tolerance)} without reference=: there is no answer to hold it against"
        )
    if out is not None and not isinstance(out, str | PathLike):
        raise UsageError(f"out={shown(out)}: give the path of a folder, or None")
    if distributed is not None and not isinstance(distributed, DistributedBenchContext):
        raise UsageError(
            f"distributed={shown(distributed)}: give None or a kernelmark.DistributedBenchContext, such as"
            " DistributedBenchContext.from_torch()"
        )
    if distributed is not None:
        _check_distributed(options)
    where = None if out is None else os.fspath(out)
    return LaunchPlan(ours, builders, resets, options, distributed, reference, tolerance, where)


def shown(value: object) -> str:
    """Show a wrong value in an error: its type alone where that says enough, so that no tensor is printed."""
    text = repr(value) if isinstance(value, str | int | float | dict | list | tuple | None) else ""
    return (
        text
        if text and len(text) <= _LONGEST_SHOWN
        else f"a {type(value).__module__}.{type(value).__qualname__}"
    )


_LONGEST_SHOWN = 100


def _check_distributed(options: LaunchOptions) -> None:
    for name, value in options.given_budgets().items():
        raise UsageError(
            f"{name}={value!r} with distributed=: the counts are fixed for several ranks; leave {name} out"
        )
    if options.timer is not None and options.timer not in DISTRIBUTED_TIMERS:
        raise UsageError(
            f"timer={options.timer!r} with distributed=: several ranks are timed by 'kineto' only, or by 'host'"
            " where there is no NVIDIA device; give None"
        )


def _named_callables(parameter: str, given: object, expected: str) -> dict[str, Any]:
    if given is None and parameter != "funcs":
        return {}
    if not isinstance(given, Mapping):
        raise UsageError(f"{parameter}={shown(given)}: give a mapping from a name to {expected}")
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"{parameter}[{name!r}]: a name is text, and not empty")
        if not callable(value):
            raise UsageError(f"{parameter}[{name!r}]={shown(value)}: give {expected}")
    return dict(given)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # false for nan too
