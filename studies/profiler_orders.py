"""Profilers one after the other in one process: each a right number, or a refusal that names the conflict.

Without arguments: every order below, each in a process of its own, all at once. With one: that order here.
``user:`` is a profiler used by somebody else than kernelmark.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time

ORDERS = [
    *(",".join(order) for order in itertools.permutations(("kineto", "cupti", "proton"))),
    "kineto,cupti,kineto,proton",
    "proton,proton,cudagraph_proton,proton,kineto,proton",
    "cupti,cudagraph_proton,cupti",
    "user:profiler,proton,kineto,cupti",
    "user:proton,kineto,cupti",
    "kineto,cupti,proton:sent,kineto,cudagraph_proton:sent",
    "proton,raise,proton",
    "cudagraph_proton,raise_graph,cudagraph_proton",
]


def one_order(order: str) -> None:
    import torch

    from kernelmark.device import open_device
    from kernelmark.errors import KernelmarkError
    from kernelmark.timing import Budget, TimingOptions, bench_kernel

    device = open_device("cuda")
    x = torch.randn(1 << 26, device="cuda")
    y = torch.empty_like(x)
    options = TimingOptions(budget=Budget(warmup_ms=2, sample_ms=5, blocks=2))

    def fail() -> None:
        torch.add(x, x, out=y)
        raise ZeroDivisionError("mine")

    def wait() -> None:
        torch.add(x, x, out=y)
        torch.cuda.synchronize()

    for step in order.split(","):
        start = time.monotonic()
        try:
            if step == "user:profiler":
                with torch.profiler.profile() as profile:
                    torch.add(x, x, out=y)
                    torch.cuda.synchronize()
                said = f"{len(profile.events())} events"
            elif step == "user:proton":
                import triton.profiler as proton

                proton.start("/tmp/open_session")
                said = "open"
            elif step.endswith(":sent"):  # what can be pickled goes to a process of its own
                name = step.removesuffix(":sent")
                found = bench_kernel(torch.add, (x, x), device=device, timer=name, options=options)
                said = f"{found.device_busy.median_ns / 1e3:.2f} us, {found.n_kernels} kernels, {found.notes[-1]}"
            elif step.startswith("raise"):
                name = "proton" if step == "raise" else "cudagraph_proton"
                bench_kernel(fail if step == "raise" else wait, device=device, timer=name, options=options)
                said = "no error"
            else:
                found = bench_kernel(
                    lambda: torch.add(x, x, out=y), device=device, timer=step, options=options
                )
                said = f"{found.device_busy.median_ns / 1e3:.2f} us, {found.n_kernels} kernels"
        except KernelmarkError as error:
            said = f"{type(error).__name__}: {error}"
        except Exception as error:
            said = f"raised {type(error).__name__}: {str(error)[:100]} {getattr(error, '__notes__', '')}"
        print(f"{order} | {step}: {said} [{time.monotonic() - start:.1f} s]", flush=True)


def main() -> None:
    if len(sys.argv) > 1:
        one_order(sys.argv[1])
        return
    running = [
        subprocess.Popen(
            [sys.executable, __file__, order], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for order in ORDERS
    ]
    for order, process in zip(ORDERS, running, strict=True):
        try:
            said, _ = process.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[0] + f"{order} | did not end\n"
        print(said[-2500:].rstrip(), f"[exit {process.returncode}]", flush=True)


main()
