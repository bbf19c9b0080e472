"""The timers that read through a profiler, on a real device: right numbers or refusals, in every order.

Which profiler came first decides what works afterwards, so each order has a process of its own.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240)]

STEPS = Path(__file__).with_name("profiler_steps.py")


@functools.cache
def steps(*names: str) -> list[dict]:
    """Run the steps one after the other in one process; give what each read, or its refusal."""
    done = subprocess.run([sys.executable, str(STEPS), *names], capture_output=True, text=True, timeout=200)
    found = [
        json.loads(line.removeprefix("STEP "))
        for line in done.stdout.splitlines()
        if line.startswith("STEP ")
    ]
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(found) == len(names)
    return found


def read(timer: str, *calls: str) -> dict[str, dict]:
    return dict(zip(calls, steps(*(f"{timer}:{call}" for call in calls)), strict=True))


LONG, SMALL = "add", "three_small"
KERNELS = ("add", "matmul", "three_small", "sleeping_host")
NOT_KERNELS = ("nothing", "copy", "kernel_copy_kernel", "two_streams", "backward")


@pytest.mark.spec("X5", "X6", "T35")
@pytest.mark.parametrize("timer", ["proton", "cudagraph_proton"])
def test_proton_adds_up_kernels_and_refuses_what_is_more_than_kernels(timer: str) -> None:
    found = read(timer, *KERNELS, *NOT_KERNELS)
    assert [found[name].get("kernels") for name in KERNELS] == [1, 1, 3, 1], found
    assert 100_000 < found["add"]["busy"] < 200_000  # 768 MiB to and from memory
    assert 1_000 < found["three_small"]["busy"] < 20_000
    assert found["sleeping_host"]["busy"] < 20_000, "a host that sleeps 2 ms in the call is not in it"
    assert {name: found[name].get("error") for name in NOT_KERNELS} == {
        "nothing": "EmptyIterationError",
        "copy": "OnlyCopiesError",
        "kernel_copy_kernel": "UnattributedActivityError",
        "two_streams": "TimingError",
        "backward": "OffThreadLaunchError",
    }


@pytest.mark.spec("X5", "X6", "T30")
def test_kineto_spans_all_of_the_call_over_all_streams() -> None:
    found = read("kineto", *KERNELS, *NOT_KERNELS)
    assert 100_000 < found["add"]["latency"] < 200_000
    assert found["three_small"]["kernels"] == 3
    assert found["three_small"]["latency"] > found["three_small"]["busy"]
    assert found["kernel_copy_kernel"]["latency"] > 50_000 > found["kernel_copy_kernel"]["busy"]
    assert found["two_streams"]["latency"] >= found["two_streams"]["busy"] > 100_000
    assert found["nothing"]["error"] == "EmptyIterationError"
    assert found["copy"]["error"] == "OnlyCopiesError"
    assert found["backward"]["error"] == "OffThreadLaunchError"


ORDERS = (
    ("kineto", "cupti", "kineto", "proton"),
    ("proton", "cupti", "kineto", "cudagraph_proton"),
    ("proton", "kineto", "cupti", "proton"),
)


@pytest.mark.spec("X6", "X7")
@pytest.mark.parametrize("order", ORDERS, ids=",".join)
def test_in_every_order_there_is_the_right_number_or_a_refusal_that_names_the_first(
    order: tuple[str, ...],
) -> None:
    found = steps(*(f"{timer}:add" for timer in order))
    for timer, each in zip(order[:-1], found[:-1], strict=True):
        assert 100_000 < each["busy"] < 200_000, (timer, each)
    refused = found[-1]
    assert refused["error"] == "InstrumentConflictError"
    assert ("torch.profiler" if order[0] == "kineto" or order[1] == "kineto" else "cupti-python") in refused[
        "message"
    ]


@pytest.mark.spec("X7")
def test_what_can_be_sent_is_read_in_a_process_of_its_own() -> None:
    sent = steps("kineto:add", "proton:sent_add")[-1]
    assert 100_000 < sent["busy"] < 200_000
    assert "torch.profiler came first" in sent["notes"][-1]


@pytest.mark.spec("X7")
def test_a_profiler_that_somebody_else_used_is_named_and_nothing_silent_comes_of_it() -> None:
    _, proton, cupti = steps("user:torch.profiler", "proton:add", "cupti:add")
    assert proton["error"] == "InstrumentConflictError"
    assert 100_000 < cupti["busy"] < 200_000, "torch.profiler's clock counts cycles"
    _, kineto, _ = steps("user:proton", "kineto:add", "proton:add")
    assert kineto["error"] == "InstrumentConflictError"


@pytest.mark.spec("X5", "X7")
def test_after_a_call_that_raised_the_next_measurement_works() -> None:
    raised, after, waited, last = steps(
        "proton:raises", "proton:add", "cudagraph_proton:waits", "cudagraph_proton:add"
    )
    assert raised["error"] == "ZeroDivisionError"
    assert "captured into a CUDA graph" in waited["notes"][-1]
    assert waited["collecting"], "garbage collection is on again"
    assert 100_000 < after["busy"] < 200_000
    assert 100_000 < last["busy"] < 200_000
