"""NVBench through its Python package (cuda-bench): what runs in its process, and how its JSON is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernelmark.audit.result import Failure, Reading, Said
from kernelmark.errors import TimingError, UnavailableError
from kernelmark.probe import require_module
from kernelmark.timing import Call
from kernelmark.units import NS_PER_S

__all__ = ["MIN_SAMPLES", "TIMEOUT_S", "parse_nvbench", "run_nvbench"]

TIMEOUT_S = 2
"""Wall time of one row. Without it NVBench took up to 125,000 samples of a small kernel, and several seconds."""
MIN_SAMPLES = 20

_MEDIAN, _SAMPLES, _WALL = "nv/cold/time/gpu/median", "nv/cold/sample_size", "nv/cold/walltime"


def run_nvbench(calls: Mapping[str, Call], *, runs: int, device: int, out: Path) -> None:
    """Let NVBench measure every call ``runs`` times, call by call, and write its JSON to ``out``.

    Raises:
        UnavailableError: cuda-bench, or the cuda-bindings it needs, is not installed.
    """
    import torch

    try:
        bench: Any = require_module("cuda.bench")
        bench.run_all_benchmarks  # noqa: B018 - loads the part that is built for one CUDA version
    except ImportError as error:
        raise UnavailableError(f"cuda-bench cannot be loaded: {error}") from error
    for call in calls.values():
        call.run(*call.args)  # what is loaded lazily would wait for the device, which a blocking kernel holds
    torch.cuda.synchronize()
    for name, call in calls.items():
        for run in range(-1, runs):  # the first follows another call, and is not kept
            measured = _measured(call, device)
            measured.__name__ = f"run_{run + 1}_call_{list(calls).index(name)}"
            bench.register(measured).set_name(_label(run, name))
    options = ("--devices", device, "--timeout", TIMEOUT_S, "--min-samples", MIN_SAMPLES, "--json", out)
    bench.run_all_benchmarks(["audit", "--quiet", *map(str, options)])


def parse_nvbench(text: str, calls: tuple[str, ...], *, runs: int) -> list[Said]:
    """Read the JSON: the median of the events' times of each run of each call, or why there is none.

    Raises:
        TimingError: it is no such JSON, or lacks what was run.
    """
    try:
        states = {each["name"]: each["states"] for each in json.loads(text)["benchmarks"]}
    except (ValueError, KeyError, TypeError) as error:
        raise TimingError(f"NVBench wrote no JSON with benchmarks and their states: {error!r}") from error
    return [_read(states.get(_label(run, name)), run, name) for run in range(runs) for name in calls]


def _read(states: Any, run: int, name: str) -> Said:
    if not states or len(states) != 1:
        raise TimingError(f"NVBench gives {len(states or ())} states for run {run} of {name} rather than one")
    (state,) = states
    if state.get("is_skipped"):
        return Failure("nvbench", f"skipped: {state.get('skip_reason') or 'no reason given'}", name)
    values = {each["tag"]: _value(each) for each in state.get("summaries") or ()}
    if _MEDIAN not in values:
        raise TimingError(
            f"NVBench gives no {_MEDIAN} for run {run} of {name}; install cuda-bench 0.3 or newer"
        )
    samples = None if values.get(_SAMPLES) is None else int(values[_SAMPLES])
    wall = None if values.get(_WALL) is None else float(values[_WALL])
    return Reading("nvbench", name, run, float(values[_MEDIAN]) * NS_PER_S, samples, wall)


def _value(summary: Mapping[str, Any]) -> Any:
    """Give the value of a summary, which NVBench writes as text; ``None`` where it is of another kind."""
    return {each.get("name"): each.get("value") for each in summary.get("data") or ()}.get("value")


def _measured(call: Call, device: int) -> Callable[[Any], None]:
    import torch

    def launch(description: Any) -> None:
        stream = torch.cuda.ExternalStream(description.get_stream().addressof(), device=device)
        with torch.cuda.stream(stream):
            call.run(*call.args)

    def measured(state: Any) -> None:
        state.exec(launch, batched=False)

    return measured


def _label(run: int, name: str) -> str:
    return f"run {run}: {name}"
