"""What the idle workers of one OpenMP runtime cost a call of another: how long they spin, and what is then read.

    python studies/spinning_workers.py [ROUNDS]

First: how long torch's workers go on computing after a parallel region, by their state as the system tells it. Then a
leaky_relu over 16 MiB with cold caches, by torch and by compiled code on LLVM's OpenMP runtime, after three ways to
evict: torch's own sum (whose workers spin on), the same and then waiting until they sleep, and kernelmark's flush.
Rounds of all six alternate. Read: lower quartile, median and upper quartile, in microseconds. Needs Linux.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable

import torch

from kernelmark.device import CpuDevice
from kernelmark.device.eviction import ReadFlusher
from kernelmark.device.settling import Settler
from torchsched.building import BuildOptions, build
from torchsched.parallel import load_openmp


class LeakyRelu(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.leaky_relu(x)


def quartiles(readings: list[float]) -> str:
    return " ".join(f"{value:7.0f}" for value in statistics.quantiles(readings, n=4))


def spin_us(settle: Settler, work: Callable[[], object], rounds: int) -> list[float]:
    """Read how long other threads compute after ``work`` has returned."""
    readings = []
    for _ in range(rounds):
        settle.expect()
        settle()
        work()
        begin = time.perf_counter_ns()
        settle()
        readings.append((time.perf_counter_ns() - begin) / 1e3)
    return readings


def read_us(evict: Callable[[], object], call: Callable[[], object]) -> float:
    evict()
    begin = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begin) / 1e3


def main(rounds: int) -> None:
    device, settle = CpuDevice(), Settler()
    if not settle.known:
        sys.exit("this system does not tell what its threads do")
    flush = device.flusher()
    by_torch = ReadFlusher("cpu", flush.size_bytes)
    x = torch.randn(1024, 4096)
    built = build(LeakyRelu(), (x,), BuildOptions(("elementwise",)))
    ours = built.compiled.bind(built.imported.arguments((x,)))
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; {load_openmp()}; {os.cpu_count()} CPUs"
    )
    print(f"torch's workers compute on for  {quartiles(spin_us(settle, by_torch, rounds))} µs")
    print(f"compiled code's workers         {quartiles(spin_us(settle, ours.run, rounds))} µs")

    def by_torch_and_settled() -> None:
        by_torch()
        settle()

    ways = {"by torch": by_torch, "by torch, then settled": by_torch_and_settled, "kernelmark's": flush}
    calls = {"torch": lambda: torch.nn.functional.leaky_relu(x), "compiled": ours.run}
    read: dict[tuple[str, str], list[float]] = {(way, call): [] for way in ways for call in calls}
    for _ in range(rounds):
        for way, evict in ways.items():
            for name, call in calls.items():
                read_us(evict, call)  # the next begins as in a pass: the last call was its own
                read[way, name].append(read_us(evict, call))
    for (way, name), readings in read.items():
        print(f"{name:9} after a flush {way:24} {quartiles(readings)} µs")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
