"""Runs steps ``timer:call`` one after the other and prints a line of JSON for each; for tests/gpu."""

from __future__ import annotations

import gc
import json
import sys
import time

import torch

from kernelmark.device import open_device
from kernelmark.report.notes import note_text
from kernelmark.timing import Budget, TimingOptions, bench_kernel

OPTIONS = TimingOptions(budget=Budget(warmup_ms=2, sample_ms=5, min_count=4, blocks=2))


class Calls:
    def __init__(self) -> None:
        self.small = torch.randn(256, device="cuda")
        self.large = torch.randn(1 << 26, device="cuda")
        self.other = torch.empty_like(self.large)
        self.square = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        self.leaf = torch.randn(1 << 22, device="cuda", requires_grad=True)
        self.side = torch.cuda.Stream()

    def add(self) -> None:
        torch.add(self.large, self.large, out=self.other)

    def matmul(self) -> None:
        torch.mm(self.square, self.square)

    def three_small(self) -> None:
        for _ in range(3):
            torch.add(self.small, self.small)

    def sleeping_host(self) -> None:
        time.sleep(0.002)
        torch.add(self.small, self.small)

    def nothing(self) -> None: ...

    def copy(self) -> None:
        self.other.copy_(self.large)

    def kernel_copy_kernel(self) -> None:
        torch.add(self.small, self.small)
        self.copy()
        torch.add(self.small, self.small)

    def two_streams(self) -> None:
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            self.add()
        torch.mul(self.square, self.square)
        torch.cuda.current_stream().wait_stream(self.side)

    def backward(self) -> None:
        self.leaf.grad = None
        (self.leaf * self.leaf).sum().backward()

    def raises(self) -> None:
        self.add()
        raise ZeroDivisionError

    def waits(self) -> None:
        self.add()
        torch.cuda.synchronize()


def user(profiler: str) -> dict:
    x = torch.ones(8, device="cuda")
    if profiler == "proton":
        import triton.profiler

        triton.profiler.start("/tmp/somebodys_session")
        return {}
    with torch.profiler.profile(acc_events=True):
        x + x
        torch.cuda.synchronize()
    return {}


def step(timer: str, call: str, calls: Calls) -> dict:
    if timer == "user":
        return user(call)
    fn, args = (torch.add, (calls.large, calls.large)) if call == "sent_add" else (getattr(calls, call), ())
    if call != "sent_add":
        fn = (lambda bound: lambda: bound())(fn)  # a closure stays in this process
    try:
        found = bench_kernel(fn, args, device=open_device("cuda"), timer=timer, options=OPTIONS)
    except Exception as error:  # noqa: BLE001 - what it is, is the answer
        notes = getattr(error, "__notes__", [])
        return {
            "error": type(error).__name__,
            "message": str(error),
            "notes": notes,
            "collecting": gc.isenabled(),
        }
    return {
        "busy": found.device_busy.median_ns,
        "latency": found.latency.median_ns,
        "kernels": found.n_kernels,
        "notes": list(map(note_text, found.notes)),
    }


def main() -> None:
    calls = Calls()
    for name in sys.argv[1:]:
        timer, _, call = name.partition(":")
        print("STEP", json.dumps(step(timer, call, calls)), flush=True)


main()
