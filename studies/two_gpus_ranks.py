"""What each rank of ``two_gpus.py`` does, in a process of its own; ``two_gpus.py`` starts it and judges.

    two_gpus_ranks.py PART RANK WORLD PORT DEVICE

Each outcome is one line of JSON on stdout. On a CPU the same goes over gloo: a rehearsal of the script, whose times
mean nothing.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import kernelmark
from kernelmark.device import open_device
from kernelmark.errors import KernelmarkError
from kernelmark.launches import DistributedBenchContext
from kernelmark.stats import paired_ratio
from kernelmark.timing import Call, block_samples, open_timer, time_together

PART, RANK, WORLD, PORT, KIND = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
GPU = KIND == "cuda"
DELAY_MS = 2.0
SIZE = 4096 if GPU else 64
ACTS_AT = 5 + 8
"""In its launch of this number a rank fails: the eighth sample after five warm-ups."""


def tell(step: str, **found: Any) -> None:
    print(json.dumps({"step": step, "at": time.time(), **found}), flush=True)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Tell how a step failed, and go on with the next one."""
    try:
        yield
    except Exception as error:  # what failed, and how, is what is studied
        tell(
            name,
            error=type(error).__name__,
            message=str(error),
            notes=getattr(error, "__notes__", []),
            measured=getattr(error, "measured", None) or {},
            traceback=traceback.format_exc()[-1500:],
        )


def connect(timeout_s: float) -> DistributedBenchContext:
    where = {}
    if GPU:
        torch.cuda.set_device(RANK)
        where = {"device_id": torch.device("cuda", RANK)}
    dist.init_process_group(
        "nccl" if GPU else "gloo",
        init_method=f"tcp://127.0.0.1:{PORT}",
        rank=RANK,
        world_size=WORLD,
        # gloo's own limit is all that ends a launch of it whose peer does not come
        timeout=timedelta(seconds=100 if GPU else 10),
        **where,
    )
    return DistributedBenchContext.from_torch(timeout_s=timeout_s)


def bench(name: str, context: DistributedBenchContext, funcs: dict[str, Any], **options: Any) -> None:
    with step(name):
        began = time.monotonic()
        result = kernelmark.bench(funcs, cooldown_s=0, distributed=context, **options)
        ranks = {
            key: {part: told[part] for part in ("median", "slowest_rank", "times_slowest", "launch_gap")}
            for key, told in result["ranks"].items()
        }
        kept = {key: result[key] for key in ("impls", "round_samples", "errors", "timer")}
        protocol = result["benchmark_protocol"]
        told = {key: protocol[key] for key in ("flush_bytes", "gpu_sleep_cycles", "probe", "statistic")}
        tell(name, **kept, ranks=ranks, protocol=told, seconds=time.monotonic() - began)


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=KIND, dtype=torch.bfloat16 if GPU else torch.float32)


def synchronize() -> None:
    if GPU:
        torch.cuda.synchronize()


# --- collectives ------------------------------------------------------------------------------------


def collectives() -> None:
    context = connect(60)
    x, weight = tensor(SIZE // WORLD, SIZE), tensor(SIZE, SIZE)
    full, out = x.new_empty(SIZE, SIZE), x.new_empty(SIZE, SIZE)
    halves, parts = [part.clone() for part in x.chunk(2)], [part.clone() for part in full.chunk(2)]
    outs = [part.clone() for part in out.chunk(2)]
    big = tensor((32 << 20) if GPU else (1 << 12))
    shard = big.new_empty(big.numel() // WORLD)

    def gather_then_mm() -> None:
        dist.all_gather_into_tensor(full, x)
        torch.mm(full, weight, out=out)

    def in_halves() -> None:
        works = [
            dist.all_gather_into_tensor(part, half, async_op=True)
            for part, half in zip(parts, halves, strict=True)
        ]
        for work, part, product in zip(works, parts, outs, strict=True):
            work.wait()
            torch.mm(part, weight, out=product)

    def all_reduce() -> None:
        dist.all_reduce(big, dist.ReduceOp.AVG if GPU else dist.ReduceOp.MAX)

    def in_two_steps() -> None:
        dist.reduce_scatter_tensor(shard, big, dist.ReduceOp.AVG)
        dist.all_gather_into_tensor(big, shard)

    with step("answers"):
        gather_then_mm()
        in_halves()
        rows = torch.cat([rank.chunk(2)[part] for part in range(2) for rank in out.chunk(WORLD)])
        torch.testing.assert_close(torch.cat(outs), rows, rtol=2e-2, atol=1.0)
        ranks = torch.full((8,), float(RANK), device=KIND)
        dist.all_reduce(ranks)
        tell("answers", total=ranks.tolist())
    funcs: dict[str, Callable[[], None]] = {"all-gather in halves, overlapped with mm": in_halves}
    references = {"all-gather, then mm": gather_then_mm, "all-reduce": all_reduce}
    if GPU:  # gloo has no average
        funcs["reduce-scatter, then all-gather"] = in_two_steps
    funcs["mm"] = lambda: torch.mm(full, weight, out=out)
    if GPU:
        with step("by events"):
            tell("by events", us={name: by_events(call) for name, call in {**funcs, **references}.items()})
    builders = {name: lambda call=call: call for name, call in references.items()}
    bench("collectives", context, funcs, references=builders, rounds=2)
    tell("sizes", all_reduce_bytes=big.nbytes, gathered_bytes=full.nbytes, flops=2 * SIZE**3)
    for timer in ("event", "proton", "cudagraph_proton", "cupti", "host", "kineto"):
        with step(f"timer {timer}"):
            told = kernelmark.bench({"mm": funcs["mm"]}, timer=timer, cooldown_s=0, distributed=context)
            tell(f"timer {timer}", timer=told["timer"], us=told["impls"]["mm"])


def by_events(call: Callable[[], None], count: int = 20) -> float:
    """Give the mean of ``count`` calls in a row: warm, and with nothing between them."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    dist.barrier()
    start.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / count


# --- skew -------------------------------------------------------------------------------------------


def skew() -> None:
    context = connect(60)
    square, token, small = tensor(SIZE // 2, SIZE // 2), tensor(1 << 20), tensor(256)
    out = torch.empty_like(square)
    spin, spin_us = known_spin()
    tell("delay", host_us=DELAY_MS * 1e3, device_us=spin_us)

    def mm() -> None:
        torch.mm(square, square, out=out)

    def all_reduce() -> None:
        dist.all_reduce(token, dist.ReduceOp.MAX)

    def late_on_host() -> None:
        if RANK == 1:
            time.sleep(DELAY_MS / 1e3)

    def late_on_device() -> None:
        if RANK == 1:
            spin()

    def twenty() -> None:
        for _ in range(20):
            small.add_(1)

    both: dict[str, Callable[[], object]] = {
        "mm, rank 1 late on the host, mm": lambda: (mm(), late_on_host(), mm()),
        "all-reduce": all_reduce,
        "rank 1 late on the host, all-reduce": lambda: (late_on_host(), all_reduce()),
        "twenty small kernels": twenty,
    }
    alone: dict[str, Callable[[], object]] = {
        "mm": mm,
        "mm, rank 1 late on the device": lambda: (mm(), late_on_device()),
        "rank 1 late on the device, all-reduce": lambda: (late_on_device(), all_reduce()),
    }
    bench("barrier of the devices", context, {**alone, **both})
    bench("barrier that the hosts wait for", host_blocking(context), both)


def host_blocking(context: DistributedBenchContext) -> DistributedBenchContext:
    """Give the same ranks with a barrier that also drains the device, the sleep before it included."""

    def barrier() -> None:
        context.barrier()
        synchronize()

    return DistributedBenchContext(
        context.rank,
        context.world_size,
        barrier,
        context.max_reduce,
        context.stream,
        device=context.device,
        leave=context.leave,
    )


def known_spin() -> tuple[Callable[[], object], float]:
    """Give a spin of about ``DELAY_MS`` on the device, and what events read for it, in µs."""
    if not GPU:
        return lambda: time.sleep(DELAY_MS / 1e3), DELAY_MS * 1e3
    cycles = int(DELAY_MS * 1.98e6)

    def spin() -> None:
        torch.cuda._sleep(cycles)

    by_events(spin, 20)
    return spin, by_events(spin, 20)


# --- failures ---------------------------------------------------------------------------------------


def at_launch(act: Callable[[], object], launch: Callable[[], object]) -> Callable[[], None]:
    """Give ``launch``; in the launch in which rank 1 is to fail, it acts first."""
    count = 0

    def run() -> None:
        nonlocal count
        count += 1
        if RANK == 1 and count == ACTS_AT:
            tell("acts")
            act()
        launch()

    return run


def fail(error: Exception) -> Any:
    raise error


def launches() -> tuple[Callable[[], None], Callable[[], None]]:
    """Give one launch of this rank alone, and one that no rank can do alone."""
    square, token = tensor(SIZE // 4, SIZE // 4), tensor(1 << 16)
    out = torch.empty_like(square)
    return lambda: torch.mm(square, square, out=out), lambda: dist.all_reduce(token, dist.ReduceOp.MAX)


def failures() -> None:
    context = connect(30)
    mm, all_reduce = launches()
    broken = {"broken": lambda: fail(OSError("no such file")) if RANK else mm}
    bench("a builder fails", context, {"mm": mm}, references=broken)
    bench("a launch raises", context, {"mm": mm, "raises": at_launch(lambda: fail(ValueError("boom")), mm)})
    bench("afterwards", context, {"all-reduce": all_reduce})
    raises = at_launch(lambda: fail(ValueError("boom")), all_reduce)
    bench("a launch raises before its collective", context, {"mm": mm, "raises": raises})
    bench("after that", context, {"mm": mm})


def killed() -> None:
    context = connect(30)
    mm, all_reduce = launches()
    dies = at_launch(lambda: os.kill(os.getpid(), signal.SIGKILL), all_reduce)
    bench("a rank is killed", context, {"mm": mm, "dies": dies})


def hangs() -> None:
    context = connect(8)
    mm, all_reduce = launches()
    bench("a rank hangs", context, {"mm": mm, "hangs": at_launch(lambda: time.sleep(3600), all_reduce)})


# --- one process ------------------------------------------------------------------------------------


def topology() -> None:
    found: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    found["nccl_environment"] = {k: v for k, v in os.environ.items() if "NCCL" in k or "GLOO" in k}
    with step("triton"):
        import triton

        found["triton"] = triton.__version__
    if GPU:
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["peer_access"] = [torch.cuda.can_device_access_peer(a, 1 - a) for a in range(2)]
        asked = "name,driver_version,clocks.max.sm,power.limit,pci.bus_id,persistence_mode,ecc.mode.current"
        for key, command in {
            "gpus": ["nvidia-smi", f"--query-gpu={asked}", "--format=csv"],
            "matrix": ["nvidia-smi", "topo", "-m"],
            "links": ["nvidia-smi", "nvlink", "-s"],
        }.items():
            with step(key):
                done = subprocess.run(command, capture_output=True, text=True, timeout=15)
                found[key] = (done.stdout or done.stderr).strip()
    tell("topology", **found)


def control() -> None:
    """Time the same two calls on both devices, and one of them twice on the first."""
    names = ["cuda:0", "cuda:1"] if GPU else ["cpu", "cpu"]
    for timer in ("device_events", "cupti") if GPU else ("host",):
        for what in ("softmax", "matmul"):
            with step(f"{timer}, {what}"):
                twice = time_on(names[0], timer, what, copies=2)
                ratio = paired_ratio(block_samples(twice["0"]), block_samples(twice["1"]))
                tell(f"{timer}, {what}", same_device=ratio.model_dump(), us=us_of(twice["0"]))
                for _ in range(3):
                    one, other = (time_on(name, timer, what)["0"] for name in names)
                    ratio = paired_ratio(block_samples(one), block_samples(other))
                    tell(
                        f"{timer}, {what}",
                        two_devices=ratio.model_dump(),
                        us=[us_of(one), us_of(other)],
                        empty_us=[each.instrument_empty_ns for each in (one, other)],
                        notes=list(one.notes),
                        clocks_mhz=[clocks(each) for each in (one, other)],
                    )


def time_on(name: str, timer: str, what: str, copies: int = 1) -> dict[str, Any]:
    torch.manual_seed(0)
    x = torch.randn(SIZE, SIZE).to(device=name, dtype=torch.bfloat16 if GPU else torch.float32)
    out = torch.empty_like(x)

    def matmul() -> None:
        torch.mm(x, x, out=out)

    def softmax() -> torch.Tensor:
        return torch.softmax(x, -1)

    run = {"matmul": matmul, "softmax": softmax}[what]
    device = open_device(name)
    if GPU:
        torch.cuda.set_device(name)
    calls = {str(index): Call(run) for index in range(copies)}
    return time_together(calls, device, timer=open_timer(timer, device))


def us_of(timing: Any) -> float:
    return timing.device_busy.median_ns / 1e3


def clocks(timing: Any) -> list[float]:
    told = [each.after.clock_mhz for each in timing.passes if each.after and each.after.clock_mhz]
    return [min(told), max(told)] if told else []


if __name__ == "__main__":
    torch.set_num_threads(1)
    parts = (topology, collectives, skew, failures, killed, hangs, control)
    try:
        {each.__name__: each for each in parts}[PART]()
    except KernelmarkError as error:
        tell(
            "connecting",
            error=type(error).__name__,
            message=str(error),
            traceback=traceback.format_exc()[-1500:],
        )
        sys.stdout.flush()
        os._exit(3)
    sys.stdout.flush()
    os._exit(0)  # torch's own goodbye waits for ranks that are gone
