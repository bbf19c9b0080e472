"""A whole ``bench`` in a process of its own, where its timer cannot follow a profiler that was used in this one.

Builders run there and not here, so each still runs once. Several ranks cannot be moved: what connects them
belongs to their processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kernelmark.device import Device, open_device
from kernelmark.errors import InstrumentConflictError
from kernelmark.launches.measuring import measure_plan
from kernelmark.launches.options import LaunchPlan
from kernelmark.launches.timers import choose_timer
from kernelmark.timing.elsewhere import (
    find_conflict,
    in_another_process,
    note_of,
    refusal,
    why_unsendable,
)

__all__ = ["conflict_of", "measure_elsewhere"]


@dataclass(frozen=True, slots=True)
class _Request:
    plan: LaunchPlan
    device: str


def conflict_of(plan: LaunchPlan, device: Device) -> InstrumentConflictError | None:
    """Say what keeps the plan's timer from being used in this process, before anything is built or launched."""
    if plan.distributed is not None:
        return None
    choice = choose_timer(plan.options.asked_timer, device, distributed=False)
    return find_conflict(choice.timer.instrument, device)


def measure_elsewhere(plan: LaunchPlan, device: Device, conflict: InstrumentConflictError) -> dict[str, Any]:
    """Measure ``plan`` in another process; the result's protocol says so and why.

    Raises:
        InstrumentConflictError: something in the plan cannot be sent; the message names it and the profiler that
            came first. Nothing was built or launched.
        Exception: whatever a launch raises there.
    """
    try:
        result = in_another_process(_measure, _Request(plan, device.torch_name), conflict)
    except InstrumentConflictError:
        for name, why in _unsendable(plan):
            raise refusal(conflict, f"{name} cannot be sent: {why}") from conflict
        raise
    result["benchmark_protocol"]["own_process"] = note_of(conflict)
    return result


def _measure(request: _Request) -> dict[str, Any]:
    return measure_plan(request.plan, open_device(request.device))


def _unsendable(plan: LaunchPlan) -> Iterator[tuple[str, str]]:
    given = {"funcs": plan.funcs, "references": plan.references, "prepare": plan.prepare}
    for parameter, callables in given.items():
        for name, value in callables.items():
            if why := why_unsendable(value):
                yield f"{parameter}[{name!r}]", why
