"""One rank of a real run: what each scenario of test_torch_ranks does, in a process of its own.

Usage: rank_program.py RANK WORLD RENDEZVOUS SCENARIO. Each outcome is one line of JSON on stdout.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import kernelmark
from kernelmark.device import cpu

RANK, WORLD = int(sys.argv[1]), int(sys.argv[2])
WARMUP = 5


def tell(outcome: dict[str, Any]) -> None:
    print(json.dumps(outcome), flush=True)


def bench(context, funcs: dict, **options) -> None:
    """Tell the result, or the error."""
    try:
        result = kernelmark.bench(funcs, cooldown_s=0, distributed=context, **options)
        tell({"result": {key: result[key] for key in ("impls", "errors", "ranks", "benchmark_protocol")}})
    except Exception as error:  # noqa: BLE001 - the test looks at what each rank raised
        tell({"error": type(error).__name__, "message": str(error)})


def at_launch(index: int, act: Callable[[], object]) -> Callable[[], None]:
    """Give a launch of rank 1 that acts when it runs for the ``index``-th time; of the others, one that does not."""
    count = 0

    def launch() -> None:
        nonlocal count
        count += 1
        if RANK == 1 and count == index:
            act()
        time.sleep(0.0005)

    return launch


def fail(error: Exception) -> Any:
    raise error


def crossing() -> Callable[[], None]:
    """Give a launch that is slow on rank 0 in even samples and on rank 1 in odd ones."""
    count = -WARMUP

    def launch() -> None:
        nonlocal count
        time.sleep(0.02 if count % 2 == RANK else 0.001)
        count += 1

    return launch


def one_after_the_other(connect: Callable[..., Any]) -> None:
    """All that two ranks survive, with one context."""
    context = connect(timeout_s=60)
    bench(context, {"crossing": crossing()})
    broken = {"bad": lambda: fail(OSError("no such file")) if RANK else (lambda: time.sleep(0.0005))}
    bench(context, {"a": lambda: time.sleep(0.0005)}, references=broken)
    bench(context, {"a" if RANK else "b": lambda: None})
    bench(context, {"a": at_launch(8, lambda: fail(ValueError("boom")))})
    bench(context, {"a": lambda: None}, rounds=0 if RANK else 1)
    bench(context, {"a": lambda: time.sleep(0.0005)})


def four(connect: Callable[..., Any]) -> None:
    context = connect(timeout_s=60)
    bench(context, {"a": lambda: time.sleep(0.03 if RANK == 2 else 0.001)})


def dies(connect: Callable[..., Any]) -> None:
    context = connect(timeout_s=6)
    bench(context, {"a": at_launch(8, lambda: os._exit(9))})
    bench(context, {"a": lambda: None})


def hangs(connect: Callable[..., Any]) -> None:
    bench(connect(timeout_s=4), {"a": at_launch(8, lambda: time.sleep(3600))})


def hangs_while_building(connect: Callable[..., Any]) -> None:
    bench(
        connect(timeout_s=4), {"a": lambda: None}, references={"b": lambda: time.sleep(3600 * RANK) or list}
    )


def alone(connect: Callable[..., Any]) -> None:
    cpu.cpu_eviction_bytes = REAL_EVICTION  # the flush of this machine, as it is
    bench(connect(), {"a": lambda: time.sleep(0.001)})


REAL_EVICTION = cpu.cpu_eviction_bytes

if __name__ == "__main__":
    torch.set_num_threads(1)
    cpu.cpu_eviction_bytes = lambda caches: 1 << 20  # what is tested is how ranks meet, not how cold they are
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=RANK, world_size=WORLD)
    globals()[sys.argv[4]](kernelmark.DistributedBenchContext.from_torch)
    os._exit(0)  # torch's own goodbye waits for ranks that are gone
