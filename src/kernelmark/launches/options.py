"""What a caller of ``bench`` may ask for, checked before anything runs. Pure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelmark.errors import UsageError
from kernelmark.launches.context import DistributedBenchContext
from kernelmark.launches.timers import DISTRIBUTED_TIMERS, LaunchTimer, find_timer
from kernelmark.timing import BudgetedCounts

__all__ = ["LaunchOptions", "LaunchPlan", "make_plan"]

Launch = Callable[[], object]
Builder = Callable[[], Launch]

BUDGETS = ("warmup", "repeat", "cudagraph_rep")


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
    asked_timer: LaunchTimer | None = field(default=None, init=False)

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
            object.__setattr__(self, "asked_timer", find_timer(self.timer))

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


def make_plan(
    funcs: object,
    *,
    references: object = None,
    prepare: object = None,
    distributed: object = None,
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
    if distributed is not None and not isinstance(distributed, DistributedBenchContext):
        raise UsageError(
            f"distributed={distributed!r}: give None or a kernelmark.DistributedBenchContext, such as"
            " DistributedBenchContext.from_torch()"
        )
    if distributed is not None:
        _check_distributed(options)
    return LaunchPlan(ours, builders, resets, options, distributed)


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
        raise UsageError(f"{parameter}={given!r}: give a mapping from a name to {expected}")
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"{parameter}[{name!r}]: a name is text, and not empty")
        if not callable(value):
            raise UsageError(f"{parameter}[{name!r}]={value!r}: give {expected}")
    return dict(given)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # false for nan too
