"""The front door for launches: check what was asked for, then measure it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernelmark.launches.context import DistributedBenchContext, leaving_on_error
from kernelmark.launches.elsewhere import conflict_of, measure_elsewhere
from kernelmark.launches.measuring import measure_plan, open_launch_device
from kernelmark.launches.options import LaunchOptions, make_plan

__all__ = ["bench"]


def bench(
    funcs: Mapping[str, Callable[[], object]],
    *,
    warmup: float | None = None,
    repeat: float | None = None,
    cudagraph_rep: float | None = None,
    timer: str | None = None,
    references: Mapping[str, Callable[[], Callable[[], object]]] | None = None,
    cooldown_s: float = 1.0,
    rounds: int = 1,
    distributed: DistributedBenchContext | None = None,
    prepare: Mapping[str, Callable[[], object]] | None = None,
) -> dict[str, Any]:
    """Time launches, each the way Triton's ``do_bench`` times a function. No answer is checked.

    Args:
        funcs: Name to a launch of ours: a callable without arguments, its inputs made once and captured.
        warmup: Budget of the warm-up in ms; the timer's own without it.
        repeat: Budget of the samples in ms; the timer's own without it.
        cudagraph_rep: Budget in ms of what ``cudagraph_proton`` unrolls into its graph.
        timer: ``event``, ``proton``, ``cudagraph_proton``, ``kineto``, ``cupti`` or ``host``; without it the
            default of the device, which the result names.
        references: Name to a builder, which returns the launch of something that is not ours. It runs once.
            One that raises becomes an entry of ``errors``, and the others go on.
        cooldown_s: Pause right before each implementation in each round.
        rounds: Independent measurements of everything.
        distributed: This rank's view of the others; every rank makes the same call.
        prepare: Name to what puts the data of that implementation back before each call, outside the reading.

    Returns:
        ``impls`` (name to µs, the mean over rounds), ``round_samples`` (name to one value a round), ``errors``,
        ``timer``, ``benchmark_protocol``, and ``samples``, ``clocks``, ``notes``; with several ranks ``ranks``.
        All of it can be written as JSON.

    Raises:
        UsageError: a value that no run could satisfy; nothing was launched or built.
        UnavailableError: this machine lacks the timer.
        InstrumentConflictError: an earlier profiler keeps the timer from being used in this process, and the
            launches cannot be sent to one of their own; nothing was launched or built.
        TimingError: the instrument cannot vouch for its readings.
        DistributedError: the ranks do not agree, or one of them is gone.
        Exception: whatever a launch raises, unchanged.
    """
    with leaving_on_error(distributed):
        options = LaunchOptions(warmup, repeat, cudagraph_rep, timer, cooldown_s, rounds)
        plan = make_plan(
            funcs, references=references, prepare=prepare, distributed=distributed, options=options
        )
        device = open_launch_device(plan.distributed)
        if conflict := conflict_of(plan, device):
            return measure_elsewhere(plan, device, conflict)
        return measure_plan(plan, device)
