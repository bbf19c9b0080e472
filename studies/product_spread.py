"""What moves a large bf16 product between readings: its clock, or something else? And what would hold it still?

    nvcc -arch=sm_90 -shared -Xcompiler -fPIC -o product_spread.so studies/product_spread.cu
    python studies/product_spread.py product_spread.so

Before every timed call a kernel of one thread reads the clock of its multiprocessor: cycles by nanoseconds, over 50 µs.
Each protocol reads the product several times in a row, as an audit does, and the first reading is left out.
"""

from __future__ import annotations

import ctypes
import sys
import time
from statistics import mean, median

import torch

from kernelmark.device import open_device
from kernelmark.timing import Budget, TimingOptions, bench_kernel

READINGS = 9
LEAST_NS = 50_000
ROOM = 1 << 16
PROTOCOLS = {
    "as it is": Budget(),
    "warm-up of 250 ms": Budget(warmup_ms=250),
    "warm-up of 1 s": Budget(warmup_ms=1000),
    "four times the samples": Budget(sample_ms=400, max_count=800, prepare_ms=2000),
    "both": Budget(warmup_ms=1000, sample_ms=400, max_count=800, prepare_ms=2000),
}


def share(values: list[float]) -> str:
    return f"{100 * (max(values) - min(values)) / median(values):.2f} %"


def main() -> None:
    probe = ctypes.CDLL(sys.argv[1]).launch_read_clock
    probe.argtypes = [ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_void_p]
    device = open_device("cuda")
    torch.manual_seed(0)
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(x)
    seen = torch.zeros(ROOM, 2, dtype=torch.int64, device="cuda")
    calls = 0

    def read_clock() -> None:
        nonlocal calls
        row = seen.data_ptr() + 16 * (calls % ROOM)
        calls += 1
        probe(row, LEAST_NS, torch.cuda.current_stream().cuda_stream)

    for watched in (False, True):
        for name, budget in PROTOCOLS.items():
            times, clocks, cycles = [], [], []
            for reading in range(READINGS):
                calls, start = 0, time.monotonic()
                found = bench_kernel(
                    lambda: torch.mm(x, x, out=out),
                    device=device,
                    timer="cupti",
                    reset=read_clock if watched else None,
                    options=TimingOptions(budget=budget),
                )
                took = time.monotonic() - start
                samples = [ns for each in found.passes for ns in each.device_busy_ns]
                mhz = [0.0]
                if watched:
                    count, ns = seen[: min(calls, ROOM)].cpu().double().unbind(1)
                    mhz = (1e3 * count / ns)[-len(samples) :].tolist()
                told = [each.after for each in found.passes if each.after]
                line = f"{median(samples) / 1e3:8.2f} µs, mean {mean(samples) / 1e3:8.2f}"
                line += f", clock {mean(mhz):7.1f} ({min(mhz):.0f} to {max(mhz):.0f}) MHz"
                line += f", told {sorted({each.clock_mhz for each in told})}"
                line += f", {median(each.power_w or 0 for each in told):.0f} W, {told[-1].temperature_c} °C"
                line += f", {sorted({each for one in told for each in one.throttle_reasons})}"
                print(f"  {len(samples)} samples in {took:.2f} s: {line}", flush=True)
                if reading:
                    times.append(median(samples))
                    clocks.append(mean(mhz))
                    cycles.append(mean(a * b for a, b in zip(samples, mhz, strict=False)))
            line = f"spread of {len(times)} medians {share(times)}"
            if watched:
                line += f", of clocks {share(clocks)}, of mean cycles {share(cycles)}"
            print(f"{name}{', clock read' if watched else ''}: {line}", flush=True)


if __name__ == "__main__":
    main()
