"""What is done in the other process: build the calls, read them, and tell each reading as it is made.

A process that dies leaves what it had read. Nothing here decides which instruments share a process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmark.audit.instruments import Instrument, build_calls, instruments_for
from kernelmark.audit.ncu import Sections, launch_marked
from kernelmark.audit.nvbench import run_nvbench
from kernelmark.audit.result import Failure, Reading, Said
from kernelmark.device import Device, open_device
from kernelmark.errors import TimingError, UnavailableError
from kernelmark.isolation import Channel
from kernelmark.probe import require_module
from kernelmark.timing import Budget, Call, TimingOptions, bench_kernel, open_timer
from kernelmark.timing.timer import SYNCHRONOUS_KINDS
from kernelmark.units import NS_PER_MS, NS_PER_S

__all__ = ["Request", "budget_for", "launch_for_ncu", "work"]

_TORCH_TIMER_S = 0.1
"""As long as kernelmark samples by default."""

_clock = time.monotonic


@dataclass(frozen=True, slots=True)
class Request:
    """What one process is to read."""

    device: str
    kind: str
    instruments: tuple[str, ...]
    runs: int
    written: Path | None = None
    """Where NVBench leaves its JSON."""


def budget_for(kind: str) -> Budget:
    """Give less than the default for flushes on a CPU, where one takes 20 to 60 ms, else four times the samples.

    Under its power cap an H200 goes from 1980 MHz to 1965 and back within a reading: of 200 samples of a product of
    4096³ the medians of eight readings were 0.43 to 0.91 % apart, of 800 samples 0.39 to 0.46 %
    (``studies/product_spread.py``).
    """
    if kind in SYNCHRONOUS_KINDS:
        return Budget(prepare_ms=200)
    return Budget(sample_ms=400, max_count=800, prepare_ms=2000)


def work(request: Request, channel: Channel) -> None:
    """Read what ``request`` asks for, and tell each reading as it is made."""
    device, calls = _opened(request.device)
    if request.written is not None:
        found: Iterator[Said] = _nvbench(device, calls, request.runs, request.written)
    else:
        known = {each.name: each for each in instruments_for(request.kind)}
        found = _all_runs(device, calls, [known[name] for name in request.instruments], request.runs)
    for said in found:
        channel.tell(said)


def launch_for_ncu(device: str, runs: str) -> None:
    """Be the program that ncu starts."""
    _, calls = _opened(device)
    launch_marked(calls, Sections(tuple(calls), int(runs)))


def _opened(name: str) -> tuple[Device, Mapping[str, Call]]:
    device = open_device(name)
    if device.kind == "cpu":
        import torch

        torch.set_num_threads(1)  # as torch's Timer reads, and so that no reading waits for a second core
    return device, build_calls(device.kind, device.torch_name)


def _nvbench(device: Device, calls: Mapping[str, Call], runs: int, out: Path) -> Iterator[Said]:
    try:
        run_nvbench(calls, runs=runs, device=int(device.torch_name.partition(":")[2] or 0), out=out)
    except UnavailableError as error:
        yield Failure("nvbench", str(error), unavailable=True)


def _all_runs(
    device: Device, calls: Mapping[str, Call], wanted: list[Instrument], runs: int
) -> Iterator[Said]:
    """Read call by call, and each call run by run, so that what changes with time meets every instrument alike.

    A reading then follows one of the same call, and the first one, which follows another call's, is not kept. A
    GPU's clock depends on the power drawn in the second before it: where each run went through all calls, five
    readings of one softmax on an H200 were 0.93 % apart; with a product before the first of them 0.71 %, and
    without that one 0.30 %.
    """
    silent: set[str] = set()
    refused: set[tuple[str, str]] = set()
    for name, call in calls.items():
        for run in range(-1, runs):
            for instrument in wanted:
                if instrument.name in silent or (instrument.name, name) in refused:
                    continue
                said = _one(device, call, instrument, run=run, name=name)
                if isinstance(said, Failure):
                    refused.add((instrument.name, name))
                    silent |= {instrument.name} if said.unavailable else set()
                if run >= 0 or isinstance(said, Failure):
                    yield said


def _one(device: Device, call: Call, instrument: Instrument, *, run: int, name: str) -> Said:
    start = _clock()
    try:
        ns, samples = _READ_BY[instrument.name if instrument.timer is None else "timer"](
            device, call, instrument
        )
    except UnavailableError as error:
        return Failure(instrument.name, str(error), unavailable=True)
    except TimingError as error:
        return Failure(instrument.name, f"{type(error).__name__}: {error}", name)
    return Reading(instrument.name, name, run, ns, samples, _clock() - start)


def _by_own_timer(device: Device, call: Call, instrument: Instrument) -> tuple[float, int | None]:
    options = TimingOptions(budget=budget_for(device.kind), cache=instrument.cache)
    timer = open_timer(instrument.timer, device)
    found = bench_kernel(call.run, call.args, device=device, timer=timer, options=options)
    return found.device_busy.median_ns, found.device_busy.samples


def _by_do_bench(device: Device, call: Call, instrument: Instrument) -> tuple[float, int | None]:
    testing: Any = require_module("triton.testing", extra="triton")
    try:
        testing.runtime.driver.active.get_device_interface()
    except RuntimeError as error:
        raise UnavailableError(f"Triton has no driver for {device.torch_name}: {error}") from error
    return testing.do_bench(lambda: call.run(*call.args), return_mode="median") * NS_PER_MS, None


def _by_torch_timer(device: Device, call: Call, instrument: Instrument) -> tuple[float, int | None]:
    from torch.utils.benchmark import Timer

    timer = Timer("run(*args)", globals={"run": call.run, "args": call.args})
    found = timer.blocked_autorange(min_run_time=_TORCH_TIMER_S)
    return found.median * NS_PER_S, found.number_per_run * len(found.raw_times)


_READ_BY: dict[str, Callable[[Device, Call, Instrument], tuple[float, int | None]]] = {
    "timer": _by_own_timer,
    "do_bench": _by_do_bench,
    "torch-timer": _by_torch_timer,
}
"""How an instrument reads a call here: nanoseconds, and from how many calls where it says so."""
