"""What a flush leaves behind: the same calls warm, and after four ways of making the caches cold or not.

    python studies/flush_kinds.py --json flush_kinds.json

The five calls of ``kernelmark audit`` and three kernels of tileops, 100 samples a run, five runs. Flushes that
are not kernelmark's own are handed over as the reset of a call, under a warm cache; nothing here reads a clock.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

WARM, ZEROS, BOTH, READ = "warm", "writes zeros", "writes, then reads", "reads only"
KINDS = (WARM, ZEROS, BOTH, READ)
"""The last one is kernelmark's own."""

Readings = Mapping[tuple[str, str], Sequence[float]]
"""Call and kind → nanoseconds of each run."""


def calls(kind: str, place: str) -> dict[str, Any]:
    """Make the calls: those of the audit, then softmax, RMSNorm and a product of tileops."""
    import torch

    from kernelmark.audit.instruments import build_calls
    from kernelmark.timing import Call
    from tileops.ops import GemmFwdOp, RMSNormFwdOp, SoftmaxFwdOp

    rows, columns, dtype = (1024, 4096, "bfloat16") if kind != "cpu" else (64, 1024, "float32")
    m, n, k = (512, 3072, 768) if kind != "cpu" else (64, 256, 64)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=place, dtype=getattr(torch, dtype))

    softmax = SoftmaxFwdOp(rows=rows, columns=columns, dtype=dtype)
    norm = RMSNormFwdOp(rows=rows, columns=columns, dtype=dtype)
    gemm = GemmFwdOp(m=m, n=n, k=k, dtype=dtype)
    return {
        **build_calls(kind, place),
        f"tileops softmax {rows} × {columns}": Call(softmax, (drawn(rows, columns),)),
        f"tileops rms_norm {rows} × {columns}": Call(norm, (drawn(rows, columns), drawn(columns))),
        f"tileops gemm {m} × {n} × {k}": Call(gemm, (drawn(m, k), drawn(k, n))),
    }


def flushes(place: str, size_bytes: int) -> dict[str, Callable[[], object] | None]:
    """Give what runs before each call, over as many bytes as kernelmark's own flush; ``None`` for nothing."""
    import torch

    from kernelmark.device.eviction import ReadFlusher

    written = torch.empty(size_bytes // 4, dtype=torch.int32, device=place)
    read = ReadFlusher(place, size_bytes)

    def write_then_read() -> None:
        written.zero_()
        read()

    return {WARM: None, ZEROS: written.zero_, BOTH: write_then_read, READ: None}


def measure(given: argparse.Namespace) -> tuple[dict[tuple[str, str], list[float]], dict[str, Any]]:
    """Read every call after every kind of flush, ``given.runs`` times; run by run, so that drift meets all."""
    from kernelmark.device import open_device
    from kernelmark.records import Cache
    from kernelmark.timing import Budget, TimingOptions, bench_kernel

    device = open_device(given.device)
    size = device.flusher().size_bytes
    budget = Budget(warmup_ms=5, min_count=given.samples, max_count=given.samples, blocks=5)
    before = flushes(device.torch_name, size)
    chosen = {
        name: call for name, call in calls(device.kind, device.torch_name).items() if given.calls in name
    }
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(given.runs):
        for name, call in chosen.items():
            for kind in KINDS:
                options = TimingOptions(budget=budget, cache=Cache.COLD if kind == READ else Cache.WARM)
                timing = bench_kernel(
                    call.run,
                    call.args,
                    reset=before[kind],
                    device=device,
                    timer=given.timer,
                    options=options,
                )
                found[name, kind].append(timing.device_busy.median_ns)
    conditions = {
        "device": device.describe().model_dump(mode="json", exclude_none=True),
        "timer": given.timer or device.default_timer,
        "runs": given.runs,
        "samples_a_run": given.samples,
        "flush_bytes": size,
    }
    return found, conditions


def lines(found: Readings) -> Iterator[str]:
    """Write the table: medians in µs, in brackets (largest - smallest) / median over the runs."""
    from kernelmark.audit.result import spread
    from kernelmark.units import format_percent, significant

    yield f"| call | {' | '.join(KINDS)} | {ZEROS} over {READ} |"
    yield f"|{' --- |' * (len(KINDS) + 2)}"
    for name in dict.fromkeys(name for name, _ in found):
        middle = {kind: median(found[name, kind]) for kind in KINDS}
        cells = [
            f"{significant(middle[kind] / 1e3)} ({format_percent(spread(found[name, kind]), 2) or 'one run'})"
            for kind in KINDS
        ]
        yield f"| {name} | {' | '.join(cells)} | {100 * (middle[ZEROS] / middle[READ] - 1):+.1f} % |"


def as_json(found: Readings, conditions: Mapping[str, Any]) -> str:
    """Write every run of every call, with the conditions."""
    readings = [{"call": name, "flush": kind, "runs_ns": list(runs)} for (name, kind), runs in found.items()]
    return json.dumps({**conditions, "readings": readings}, indent=1, ensure_ascii=False) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda", help="where the calls run (%(default)s)")
    parser.add_argument("--timer", help="the device's default without it")
    parser.add_argument("--runs", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--samples", type=int, default=100, help="of a run (%(default)s)")
    parser.add_argument("--calls", default="", metavar="TEXT", help="only those with TEXT in their name")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run there")
    given = parser.parse_args(words)
    found, conditions = measure(given)
    print(*lines(found), sep="\n", flush=True)
    if given.json is not None:
        given.json.write_text(as_json(found, conditions), encoding="utf-8")


if __name__ == "__main__":
    main()
