"""Every timer on the calls that instruments disagree about in kind: the right number, or a refusal.

Run on a CUDA device. Prints one line for each call and timer: busy, latency and gap in µs, the numbers of
kernels, copies and memsets, or the refusal. Arguments: the timers, by name.
"""

from __future__ import annotations

import sys

import torch

from kernelmark.device import open_device
from kernelmark.errors import KernelmarkError
from kernelmark.records import Cache
from kernelmark.timing import Budget, Call, TimingOptions, open_timer, time_together


def calls() -> dict[str, Call]:
    small = torch.randn(256, device="cuda")
    megabytes4 = torch.randn(1 << 20, device="cuda")
    large = torch.randn(1 << 26, device="cuda")
    square = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    other = torch.empty_like(large)
    side = torch.cuda.Stream()
    leaf = torch.randn(1 << 24, device="cuda", requires_grad=True)

    def kernel_copy_kernel() -> None:
        torch.add(small, small)
        other.copy_(large)
        torch.add(small, small)

    def two_streams() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.add(large, 1.0, out=other)
        torch.mul(square, square)
        torch.cuda.current_stream().wait_stream(side)

    def backward() -> None:
        leaf.grad = None
        (leaf * leaf).sum().backward()

    def three_small() -> None:
        for _ in range(3):
            torch.add(small, small)

    return {
        "add 256 floats": Call(lambda: torch.add(small, small)),
        "add 4 MB": Call(lambda: torch.add(megabytes4, megabytes4)),
        "add 256 MB": Call(lambda: torch.add(large, large)),
        "matmul 4096 bf16": Call(lambda: torch.mm(square, square)),
        "softmax 4096 bf16": Call(lambda: torch.softmax(square, -1)),
        "nothing": Call(lambda: None),
        "copy 256 MB": Call(lambda: other.copy_(large)),
        "kernel copy kernel": Call(kernel_copy_kernel),
        "two streams": Call(two_streams),
        "backward": Call(backward),
        "three small": Call(three_small),
    }


def main() -> None:
    device = open_device("cuda")
    for timer in sys.argv[1:] or ("device_events", "cupti"):
        for cache in (Cache.COLD, Cache.WARM):
            for name, call in calls().items():
                for count_copies in (False, True) if "copy" in name else (False,):
                    options = TimingOptions(budget=Budget(), cache=cache, count_copies=count_copies)
                    label = f"{timer:14} {cache.value} {name}{' counted' if count_copies else ''}"
                    try:
                        t = time_together(
                            {name: call}, device, timer=open_timer(timer, device), options=options
                        )[name]
                    except KernelmarkError as error:
                        print(f"{label:48} {type(error).__name__}: {str(error)[:150]}", flush=True)
                        continue
                    gap = "" if t.gap_ns is None else f"gap {t.gap_ns / 1e3:8.2f}"
                    print(
                        f"{label:48} busy {t.device_busy.median_ns / 1e3:8.2f}"
                        f" latency {t.latency.median_ns / 1e3:8.2f} {gap}"
                        f" n {t.n_kernels} {t.n_copies} {t.n_memsets} samples {t.device_busy.samples}"
                        f" p10 {(t.device_busy.p10_ns or 0) / 1e3:.2f} p90 {(t.device_busy.p90_ns or 0) / 1e3:.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
