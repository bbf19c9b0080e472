"""The front door for launches: check what was asked for, then measure it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

from kernelmark.launches.options import LaunchOptions, make_plan
from kernelmark.launches.ranks import DistributedBenchContext, leaving_on_error

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
    reference: Callable[[], object] | None = None,
    tolerance: Any = None,
    out: str | PathLike[str] | None = None,
) -> dict[str, Any]:
    """Time launches, each the way Triton's ``do_bench`` times a function.

    Without a ``reference`` no answer is checked and no ratio is given: whoever does less is faster.

    Args:
        funcs: Name to a launch of ours: a callable without arguments, its inputs made once and captured.
        warmup: Budget of the warm-up in ms; the timer's own without it.
        repeat: Budget of the samples in ms; the timer's own without it.
        cudagraph_rep: Budget in ms of what ``cudagraph_proton`` unrolls into its graph.
        timer: ``event``, ``device_events``, ``proton``, ``cudagraph_proton``, ``kineto``, ``cupti`` or ``host``;
            without it the default of the device, which the result names.
        references: Name to a builder, which returns the launch of something that is not ours. It runs once.
            One that raises becomes an entry of ``errors``, and the others go on.
        cooldown_s: Pause right before each implementation in each round.
        rounds: Independent measurements of everything. Each is a block of the interval of a ratio.
        distributed: This rank's view of the others; every rank makes the same call.
        prepare: Name to what puts the data of that implementation back before each call, outside the reading.
        reference: Returns the right answer. Every launch is then called before anything is timed, and again
            afterwards, and must return the same.
        tolerance: How far answers may be off, as in ``kernelmark.compare``.
        out: Folder to keep the run in: its records, and the reports made of them.

    Returns:
        ``impls`` (name to µs, the mean over rounds), ``round_samples`` (name to one value a round), ``errors``,
        ``timer``, ``benchmark_protocol``, and ``checks``, ``ratios``, ``samples``, ``clocks``, ``notes``; with
        several ranks ``ranks``. All of it can be written as JSON.

    Raises:
        UsageError: a value that no run could satisfy; nothing was launched or built.
        UnavailableError: this machine lacks the timer.
        InstrumentConflictError: an earlier profiler keeps the timer from being used in this process, and the
            launches cannot be sent to one of their own; nothing was launched or built.
        VerificationError: an answer is not that of ``reference``; nothing was timed.
        TimingError: the instrument cannot vouch for its readings.
        DistributedError: the ranks do not agree, or one of them is gone.
        Exception: whatever a launch raises while it is timed, unchanged.
    """
    with leaving_on_error(distributed):
        options = LaunchOptions(warmup, repeat, cudagraph_rep, timer, cooldown_s, rounds)
        plan = make_plan(
            funcs,
            references=references,
            prepare=prepare,
            distributed=distributed,
            reference=reference,
            tolerance=tolerance,
            out=out,
            options=options,
        )
        # loads torch, with the engine; only now that the values are known to be good
        from kernelmark.launches.measuring import (
            conflict_of,
            measure_elsewhere,
            measure_plan,
            open_launch_device,
        )

        device = open_launch_device(plan.distributed)
        if conflict := conflict_of(plan, device):
            return measure_elsewhere(plan, device, conflict)
        return measure_plan(plan, device)
