"""Record what Proton and torch.profiler say of a few calls on a CUDA device, as fixtures for attribution.

    python studies/record_profilers.py tests/data/profilers

One process: Proton first, since it cannot start after the others. Each file holds three calls.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from timer_kinds import calls

from kernelmark.device import open_device
from kernelmark.errors import KernelmarkError
from kernelmark.timing.timers.activity import WorkPerCall
from kernelmark.timing.timers.kineto import KinetoTimer
from kernelmark.timing.timers.proton import CudagraphProtonTimer, ProtonTimer

COUNT = 3


def write(path: Path, found: dict[str, Any]) -> None:
    """Write one item of each list a line."""
    parts = []
    for name, value in found.items():
        lines = [json.dumps(each, default=float) for each in value] if isinstance(value, list) else []
        text = "[\n " + ",\n ".join(lines) + "\n]" if lines else json.dumps(value)
        parts.append(f"{json.dumps(name)}: {text}")
    path.write_text("{" + ",\n".join(parts) + "}\n")


def shortened(event: dict[str, Any], start: Any) -> dict[str, Any]:
    """Keep what is read of an event, with times from ``start``."""
    arguments = {
        key: event["args"][key] for key in ("correlation", "stream", "bytes") if key in event["args"]
    }
    kept = {key: event[key] for key in ("cat", "name", "tid", "dur")}
    return kept | {"ts": event["ts"] - start, "args": arguments}


def record_proton(timer: ProtonTimer, folder: Path) -> None:
    device = open_device("cuda")
    flush = device.flusher()
    timer.open(device)
    for name, call in calls().items():
        file = f"{timer.name}_{name.replace(' ', '_')}.json"
        call.run()
        flush()
        seen = timer._cupti.collect(call.run, device.synchronize)  # type: ignore[union-attr]
        start = min((a.start_ns for a in seen), default=0)
        work = [
            dataclasses.asdict(a) | {"start_ns": a.start_ns - start, "end_ns": a.end_ns - start} for a in seen
        ]
        kernels = sum(a.kind == "kernel" for a in seen)
        timer._known[id(call)] = call, WorkPerCall(kernels, sum(a.kind == "memset" for a in seen))
        try:
            tree = timer.collect(call, flush, COUNT).database
        except (KernelmarkError, RuntimeError) as error:
            print(file, "not read:", type(error).__name__, str(error)[:200], flush=True)
            tree = None
        write(folder / file, {"work": work, "count": COUNT, "replays": timer.replays, "database": tree})
        print(file, len(work), "activities", flush=True)
    timer.close()


def record_kineto(folder: Path) -> None:
    device = open_device("cuda")
    timer = KinetoTimer()
    timer.open(device)
    for name, call in calls().items():
        call.run()
        trace = timer.collect(call, device.flusher(), COUNT)
        start = min(event["ts"] for event in trace.events)
        events = [shortened(dict(event), start) for event in trace.events]
        write(folder / f"kineto_{name.replace(' ', '_')}.json", {"events": events, "count": COUNT})
        print("kineto", name, len(trace.events), "events", flush=True)
    timer.close()


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    record_proton(ProtonTimer(), folder)
    record_proton(CudagraphProtonTimer(), folder)
    record_kineto(folder)


main()
