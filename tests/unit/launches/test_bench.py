"""The whole way in, on this machine's own processors."""

from __future__ import annotations

import json

import pytest
import torch

import kernelmark
from kernelmark.device import open_device
from kernelmark.launches.measuring import open_launch_device
from kernelmark.launches.ranks import DistributedBenchContext


@pytest.fixture(autouse=True)
def small_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evict little: what is tested here is not how cold the caches are."""
    monkeypatch.setattr("kernelmark.device.cpu.cpu_eviction_bytes", lambda caches: 1 << 20)


needs_no_accelerator = pytest.mark.skipif(
    torch.accelerator.is_available(), reason="the default is another timer where there is an accelerator"
)


@needs_no_accelerator
@pytest.mark.spec("X2", "X9", "X10")
def test_launches_are_timed_and_the_result_says_that_the_hosts_clock_was_read() -> None:
    x = torch.randn(64, 64)
    result = kernelmark.bench(
        {"mm": lambda: x @ x},
        references={"mul": lambda: lambda: x * x},
        warmup=1,
        repeat=5,
        cooldown_s=0,
        rounds=2,
    )
    assert json.loads(json.dumps(result)) == result
    assert list(result["impls"]) == ["mm", "mul"]
    assert all(value > 0 for value in result["impls"].values())
    assert {name: len(values) for name, values in result["round_samples"].items()} == {"mm": 2, "mul": 2}
    assert result["timer"] == "host"
    assert "the host's clock is read" in result["benchmark_protocol"]["timer_chosen"]
    assert result["benchmark_protocol"]["flush_bytes"] == 1 << 20
    assert result["benchmark_protocol"]["device"]["kind"] == "cpu"


@needs_no_accelerator
@pytest.mark.spec("X4")
def test_the_result_shows_that_cold_was_cold_on_this_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelmark.device import eviction

    monkeypatch.setattr("kernelmark.device.cpu.cpu_eviction_bytes", eviction.cpu_eviction_bytes)
    protocol = kernelmark.bench({"a": lambda: sum(range(99))}, repeat=1, warmup=0, cooldown_s=0)[
        "benchmark_protocol"
    ]
    assert protocol["cache"] == "cold"
    assert protocol["probe"]["cold_over_warm"] > 1.3
    assert protocol["probe"]["doubt"] == ""


@needs_no_accelerator
@pytest.mark.spec("X7", "X8")
def test_a_launch_of_ours_that_raises_ends_the_bench_and_the_next_one_works() -> None:
    def fails() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        kernelmark.bench({"a": fails}, cooldown_s=0)
    assert caught.value.__notes__ == ["while 'a' was timed, in round 1 of 1"]
    assert kernelmark.bench({"a": lambda: sum(range(99))}, repeat=1, cooldown_s=0)["impls"]["a"] > 0


@needs_no_accelerator
@pytest.mark.spec("X16")
def test_an_in_place_launch_is_put_back_before_every_call() -> None:
    x, seen = torch.ones(8), []

    def launch() -> None:
        seen.append(float(x[0]))
        x.mul_(2)

    kernelmark.bench({"a": launch}, prepare={"a": lambda: x.fill_(1)}, warmup=1, repeat=3, cooldown_s=0)
    assert set(seen) == {1.0}


def test_the_launches_device_is_the_contexts_own_or_its_streams() -> None:
    class Stream:
        device = torch.device("cpu")

        def synchronize(self) -> None: ...

    by_stream = DistributedBenchContext(0, 1, list, float, Stream())
    by_name = DistributedBenchContext(0, 1, list, float, Stream(), device="cpu")
    assert open_launch_device(by_stream).torch_name == open_launch_device(by_name).torch_name == "cpu"


@needs_no_accelerator
def test_without_a_context_the_device_is_the_one_that_torch_has_current() -> None:
    assert open_launch_device(None).torch_name == open_device("cpu").torch_name
