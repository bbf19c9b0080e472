"""One rank of a real run: what each scenario of test_torch_ranks does, in a process of its own.

Usage: rank_program.py RANK WORLD RENDEZVOUS SCENARIO. Each outcome is one line of JSON on stdout.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import kernelmark
from kernelmark.device import cpu
from kernelmark.launches.torch_ranks import TorchRanks

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
        kept = getattr(error, "measured", None) or {}
        notes = getattr(error, "__notes__", [])
        tell({"error": type(error).__name__, "message": str(error), "measured": kept, "notes": notes})


def at_launch(
    index: int, act: Callable[[], object], *, of: int = 1, others: Any = None
) -> Callable[[], None]:
    """Give a launch that acts when it runs for the ``index``-th time on rank ``of``; the others may act too."""
    count = 0

    def launch() -> None:
        nonlocal count
        count += 1
        if count == index:
            if of == RANK:
                act()
            elif others is not None:
                others()
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
    bench(context, {"crossing": crossing()})
    broken = {"bad": lambda: fail(OSError("no such file")) if RANK == 2 else (lambda: time.sleep(0.0005))}
    bench(context, {"a": lambda: time.sleep(0.0005)}, references=broken)
    bench(context, {"a": lambda: time.sleep(0.002), "b": at_launch(8, killed, of=3)})


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Devices:
    """Stands for devices that wait for each other: a host waits for its own, and only parting them frees it."""

    def __init__(self, timeout_s: float) -> None:
        ranks = TorchRanks(None, "cpu", timeout_s)
        self.parted = threading.Event()
        ranks._watch = ranks.watch_over(self.parted.set, limit_s=timeout_s)
        self.context = kernelmark.DistributedBenchContext(
            ranks.rank, ranks.world_size, ranks.barrier, ranks.max_reduce, ranks.stream, "cpu", ranks.leave
        )

    def wait(self) -> None:
        if not self.parted.wait(100):
            raise AssertionError("nothing parted the devices")

    def bench(self, act: Callable[[], object], wait: Callable[[], object] | None = None) -> None:
        """Rank 1 acts in its eighth launch, while the devices of the others wait for it; then all try again."""
        launch = at_launch(8, act, others=wait or self.wait)
        bench(self.context, {"a": lambda: time.sleep(0.001), "b": launch})
        bench(self.context, {"a": lambda: None})


def device_waits_for_one_that_was_killed(connect: Callable[..., Any]) -> None:
    Devices(60).bench(killed)


def device_waits_for_one_that_raised(connect: Callable[..., Any]) -> None:
    Devices(60).bench(lambda: fail(ValueError("boom")))


def device_waits_for_one_that_hangs(connect: Callable[..., Any]) -> None:
    Devices(3).bench(lambda: time.sleep(3600))


def launch_fails_since_its_peer_was_killed(connect: Callable[..., Any]) -> None:
    devices = Devices(60)

    def waits_and_fails() -> None:
        devices.wait()
        raise RuntimeError("the communicator was aborted")

    devices.bench(killed, waits_and_fails)


def launch_fails_before_its_device_is_parted(connect: Callable[..., Any]) -> None:
    def fails_by_itself() -> None:
        time.sleep(0.3)
        raise RuntimeError("an illegal memory access was encountered")

    Devices(60).bench(killed, fails_by_itself)


def device_waits_long_for_one_that_comes(connect: Callable[..., Any]) -> None:
    bench(Devices(60).context, {"a": at_launch(8, lambda: time.sleep(3), others=lambda: time.sleep(3))})


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
