"""How long idle OpenMP workers of compiled code should spin, beside torch, which has a runtime of its own.

    python studies/openmp_waiting.py [ROUNDS]

Both compute an exponential over as many elements, on all cores. Spinning workers of one runtime take cores from the
other; sleeping ones must be woken. In each round every setting has its turn, so that a noisy machine is noisy for
all. Read: the minimum and the lower quartile of each column, in microseconds.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch

from torchsched.descriptors import find_schedule
from torchsched.elements import Element
from torchsched.execution import compile_lowered
from torchsched.ingress import import_model
from torchsched.lowering import lower
from torchsched.parallel import load_openmp
from torchsched.targets import detect

SETTINGS_MS = (0, 1, 5, 200)
ELEMENTS = 1 << 18
PAUSE_S = 0.005


class Exponential(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x)


def clock(call: Callable[[], object]) -> float:
    begin = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - begin) / 1e3


def main(rounds: int) -> None:
    target = detect()
    x = torch.rand(512, ELEMENTS // 512)
    imported = import_model(Exponential(), (x,))
    compiled = compile_lowered(lower(imported, find_schedule("default", Element.F32, target), target))
    ours, out = compiled.bind([x]), torch.empty_like(x)
    runtime = load_openmp().library

    def theirs() -> object:
        return torch.exp(x, out=out)

    def idle() -> None:
        time.sleep(PAUSE_S)

    columns: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "torch after torch": (theirs, theirs),
        "torch after ours": (ours, theirs),
        "ours after ours": (ours, ours),
        "ours after torch": (theirs, ours),
        f"ours after {PAUSE_S * 1e3:.0f} ms": (idle, ours),
    }
    read: dict[int, dict[str, list[float]]] = {ms: {name: [] for name in columns} for ms in SETTINGS_MS}
    for _ in range(rounds):
        for ms in SETTINGS_MS:
            runtime.kmp_set_blocktime(ms)
            for name, (before, timed) in columns.items():
                before()
                before()
                read[ms][name].append(clock(timed))
    print(f"{compiled.threads} threads, torch {torch.get_num_threads()}; {rounds} rounds")
    print("spin ms  " + "  ".join(f"{name:>18}" for name in columns))
    for ms, found in read.items():
        cells = [f"{min(values):.0f} {statistics.quantiles(values, n=4)[0]:.0f}" for values in found.values()]
        print(f"{ms:7d}  " + "  ".join(f"{cell:>18}" for cell in cells))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
