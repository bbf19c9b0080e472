"""Launches on a real device. Each profiler has a process of its own, since they take CUPTI from each other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import kernelmark
from kernelmark.launches.measuring import DISTRIBUTED_FLUSH_BYTES

pytestmark = pytest.mark.gpu

LIMIT_S = 240

PRELUDE = """
import json, sys, time
import torch, kernelmark
x, y = torch.randn(2, 1 << 20, device="cuda").unbind()
out = torch.empty_like(x)
def add(): torch.add(x, y, out=out)
def slow_host():
    time.sleep(0.001)
    add()
def fails(): raise ValueError("mine")
def tell(result): print(json.dumps(result))
"""


def run(program: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, *arguments], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.spec("X2")
@pytest.mark.parametrize(
    ("argument", "name"),
    [
        ("", "proton"),
        *((f"timer={each!r}", each) for each in ("event", "proton", "cudagraph_proton", "cupti")),
    ],
)
def test_each_timer_reads_a_4_mib_add_as_microseconds_and_the_result_names_it(
    argument: str, name: str
) -> None:
    result = run(f"tell(kernelmark.bench({{'add': add}}, cooldown_s=0, rounds=2, {argument}))")
    assert result["timer"] == name
    assert 1 < result["impls"]["add"] < 100
    assert len(result["round_samples"]["add"]) == 2
    assert result["benchmark_protocol"]["flush_bytes"] > 1 << 20
    assert result["clocks"]["add"][0]["before"]


@pytest.mark.spec("X5")
def test_a_host_that_sleeps_inside_the_call_changes_event_and_not_proton() -> None:
    program = "tell(kernelmark.bench({'add': add, 'slow': slow_host}, cooldown_s=0, timer=sys.argv[1]))"
    event, proton = run(program, "event")["impls"], run(program, "proton")["impls"]
    assert event["slow"] > 500
    assert event["slow"] > 10 * event["add"]
    assert proton["slow"] < 2 * proton["add"]


@pytest.mark.spec("X7")
@pytest.mark.parametrize("timer", ["event", "proton", "cudagraph_proton", "cupti"])
def test_after_a_launch_that_raises_the_next_bench_of_the_process_works(timer: str) -> None:
    result = run(
        f"""
try:
    kernelmark.bench({{"a": fails}}, cooldown_s=0, timer={timer!r})
except ValueError:
    tell(kernelmark.bench({{"add": add}}, cooldown_s=0, timer={timer!r}))
"""
    )
    assert result["impls"]["add"] > 1


@pytest.mark.spec("X16")
def test_prepare_is_outside_the_events_reading() -> None:
    x = torch.ones(1 << 20, device="cuda")
    big = torch.ones(1 << 26, device="cuda")
    plain = kernelmark.bench({"a": lambda: x.mul_(2)}, timer="event", cooldown_s=0)["impls"]["a"]
    prepared = kernelmark.bench(
        {"a": lambda: x.mul_(2)},
        timer="event",
        cooldown_s=0,
        prepare={"a": lambda: (big.zero_(), x.fill_(1))},
    )["impls"]["a"]
    assert prepared < 3 * plain


RANKS = """
import torch.distributed as dist
rank, world, path, backend = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
device = rank if backend == "nccl" else 0
torch.cuda.set_device(device)
x, y, out = x.to(device), y.to(device), out.to(device)
dist.init_process_group(backend, init_method=f"file://{path}", rank=rank, world_size=world)
context = kernelmark.DistributedBenchContext.from_torch(device=f"cuda:{device}", timeout_s=60)
tell(kernelmark.bench({"add": add}, cooldown_s=0, rounds=2, distributed=context, prepare={"add": out.zero_}))
"""


def run_ranks(folder: Path, world: int, backend: str) -> list[dict[str, Any]]:
    ranks = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                PRELUDE + RANKS,
                str(rank),
                str(world),
                str(folder / "rendezvous"),
                backend,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    try:
        told = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert not any(rank.returncode for rank in ranks), told
    return [json.loads(printed.splitlines()[-1]) for printed, _ in told]


def check_span(result: dict[str, Any], world: int, *, longest_us: float = 1000) -> None:
    protocol = result["benchmark_protocol"]
    assert result["timer"] == "kineto"
    assert 1 < result["impls"]["add"] < longest_us
    assert protocol["flush_bytes"] >= DISTRIBUTED_FLUSH_BYTES
    assert protocol["gpu_sleep"] == "before each launch"
    assert protocol["counts"]["add"] == {"warmup": [5, 5], "samples": [30, 30], "estimate_us": [None, None]}
    assert [len(each) for each in result["ranks"]["add"]["samples"]] == [world, world]
    assert result["ranks"]["add"]["launch_gap"] is not None


@pytest.mark.spec("X2", "X13", "X14")
def test_one_rank_reads_the_span_of_its_launch_by_kineto(tmp_path: Path) -> None:
    (result,) = run_ranks(tmp_path, 1, "nccl")
    check_span(result, 1)


@pytest.mark.spec("X13", "X14")
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_ranks_on_two_devices_give_the_same_result(tmp_path: Path) -> None:
    first, second = run_ranks(tmp_path, 2, "nccl")
    check_span(first, 2)
    assert (first["impls"], first["ranks"]) == (second["impls"], second["ranks"])


@pytest.mark.spec("X13", "X14")
def test_two_ranks_share_one_device_and_meet_over_gloo(tmp_path: Path) -> None:
    first, second = run_ranks(tmp_path, 2, "gloo")
    check_span(
        first, 2, longest_us=100_000
    )  # the device takes turns between the processes, for milliseconds each
    assert (first["impls"], first["ranks"]) == (second["impls"], second["ranks"])
