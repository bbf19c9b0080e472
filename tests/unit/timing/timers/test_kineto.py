"""What torch.profiler wrote on an H200 (``studies/record_profilers.py``), attributed: the right spans, or a refusal."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kernelmark.errors import (
    EmptyIterationError,
    OffThreadLaunchError,
    OnlyCopiesError,
    RecordsLostError,
    TimingError,
    UnattributedActivityError,
)
from kernelmark.timing.timer import Samples
from kernelmark.timing.timers.activity import attribute
from kernelmark.timing.timers.kineto import KinetoTimer, Trace, read_trace

FOLDER = Path(__file__).parents[3] / "data" / "profilers"


def recorded(name: str) -> Trace:
    raw = json.loads((FOLDER / f"kineto_{name}.json").read_text(), parse_float=Decimal)
    return Trace(raw["events"], raw["count"])


def attributed(trace: Trace, *, count_copies: bool = True) -> Samples:
    return KinetoTimer().attribute(trace, count_copies=count_copies)


def without(trace: Trace, drop: Any) -> Trace:
    return Trace([event for event in trace.events if not drop(event)], trace.count)


@pytest.mark.spec("X5")
@pytest.mark.parametrize(
    ("name", "kernels", "copies", "memsets", "low", "high"),
    [
        ("add_4_MB", 1, 0, 0, 2_500, 4_500),
        ("matmul_4096_bf16", 1, 0, 1, 160_000, 260_000),
        ("copy_256_MB", 0, 1, 0, 110_000, 150_000),
        ("kernel_copy_kernel", 2, 1, 0, 110_000, 260_000),
        ("two_streams", 2, 0, 0, 110_000, 200_000),
    ],
)
def test_a_call_is_the_span_of_all_it_did(
    name: str, kernels: int, copies: int, memsets: int, low: int, high: int
) -> None:
    found = attributed(recorded(name))
    assert all(low < span < high for span in found.latency_ns), found.latency_ns
    assert found.n_kernels == (kernels,) * 3
    assert found.n_copies == (copies,) * 3
    assert found.n_memsets == (memsets,) * 3
    assert all(busy <= span for busy, span in zip(found.device_busy_ns, found.latency_ns, strict=True))


def test_gaps_between_kernels_are_in_the_span_and_not_in_the_busy_time() -> None:
    found = attributed(recorded("three_small"))
    assert found.n_kernels == (3, 3, 3)
    assert all(2_500 < busy < 4_500 for busy in found.device_busy_ns)
    assert all(span > 2 * busy for busy, span in zip(found.device_busy_ns, found.latency_ns, strict=True))


@pytest.mark.spec("T30")
def test_a_copy_alone_is_refused_unless_it_counts() -> None:
    with pytest.raises(OnlyCopiesError):
        attributed(recorded("copy_256_MB"), count_copies=False)


@pytest.mark.spec("X6", "T35")
def test_nothing_and_another_threads_work_are_two_refusals() -> None:
    with pytest.raises(EmptyIterationError):
        attributed(recorded("nothing"))
    with pytest.raises(OffThreadLaunchError, match="backward"):
        attributed(recorded("backward"))


@pytest.mark.spec("X6")
def test_a_launch_without_its_kernel_means_lost_records() -> None:
    trace = recorded("three_small")
    last = max((e for e in trace.events if e["cat"] == "kernel"), key=lambda e: e["ts"])
    with pytest.raises(RecordsLostError, match="1 launches"):
        attributed(without(trace, lambda event: event is last))


@pytest.mark.spec("X6")
def test_a_kernel_whose_launch_is_not_known_belongs_to_nobody() -> None:
    trace = recorded("add_4_MB")
    launch = next(e for e in reversed(trace.events) if e["name"] == "cudaLaunchKernel")
    with pytest.raises(UnattributedActivityError):
        attributed(without(trace, lambda event: event is launch))


@pytest.mark.spec("X6")
def test_a_missing_scope_is_an_error() -> None:
    trace = recorded("add_4_MB")
    scope = next(e for e in trace.events if e["name"] == "kernelmark.call")
    with pytest.raises(TimingError, match="recorded 2 of 3 calls"):
        attributed(without(trace, lambda event: event is scope))


@pytest.mark.spec("X6")
def test_calls_that_do_not_launch_the_same_number_of_kernels_are_an_error() -> None:
    trace = recorded("three_small")
    last = max((e for e in trace.events if e["cat"] == "kernel"), key=lambda e: e["ts"])["args"][
        "correlation"
    ]
    with pytest.raises(TimingError, match="launched 2 to 3 kernels"):
        attributed(without(trace, lambda event: event["args"].get("correlation") == last))


@pytest.mark.spec("X4", "X6")
def test_a_call_that_does_not_wait_for_its_flush_is_an_error() -> None:
    events = [dict(event) for event in recorded("add_4_MB").events]
    flush, call = [e for e in events if e["cat"] == "kernel"][:2]
    call["ts"] = flush["ts"]
    with pytest.raises(TimingError, match=r"1 calls started .* before their reset and flush had ended"):
        attributed(Trace(events, 3))


def test_times_are_exact_to_the_nanosecond() -> None:
    trace = recorded("add_4_MB")
    spans = [a.end_ns - a.start_ns for a in read_trace(trace).activities]
    assert spans == [int(e["dur"] * 1000) for e in trace.events if e["cat"] == "kernel"]
    assert attribute(read_trace(trace), count_copies=True) == attributed(trace)
