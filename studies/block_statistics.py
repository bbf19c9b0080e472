"""Which statistic of a block finds a known slowdown best: the median, the lower quartile or the minimum.

    python studies/block_statistics.py [COMPARISONS]

A softmax over 100 slices against one over 102, warm, on the CPU, at default settings. Each statistic is put
through the same t interval over blocks. Found: the interval lies above 1. Missed: it leaves out 1.02.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from kernelmark.device import open_device
from kernelmark.records import Cache
from kernelmark.stats import t_quantile
from kernelmark.timing import TimingOptions, block_samples, open_timer, time_together

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

FACTOR = 1.02
Statistic = Callable[[Sequence[float]], float]
STATISTICS: dict[str, Statistic] = {
    "median": statistics.median,
    "lower quartile": lambda samples: sorted(samples)[(len(samples) - 1) // 4],
    "minimum": min,
}


def interval(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]], of: Statistic
) -> tuple[float, float]:
    logs = [math.log(of(b) / of(a)) for a, b in zip(ours, theirs, strict=True)]
    half = t_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return statistics.mean(logs) - half, statistics.mean(logs) + half


def main() -> None:
    from honesty import sliced_softmax

    count = int(sys.argv[1]) if len(sys.argv) > 1 else 70
    device = open_device("cpu")
    ours, slowed = sliced_softmax(torch.device("cpu"), FACTOR)
    options = TimingOptions(cache=Cache.WARM)
    pairs = []
    for _ in range(count):
        found = time_together(
            {"a": ours, "b": slowed}, device, timer=open_timer(None, device), options=options
        )
        pairs.append((block_samples(found["a"]), block_samples(found["b"])))
    for name, of in STATISTICS.items():
        ends = [interval(a, b, of) for a, b in pairs]
        hit = sum(low > 0 for low, _ in ends)
        missed = sum(not low <= math.log(FACTOR) <= high for low, high in ends)
        half = statistics.median((high - low) / 2 for low, high in ends)
        print(f"{name:16} found {hit} of {count}, missed {FACTOR} in {missed}, half-width {100 * half:.2f} %")


main()
