"""What Proton wrote on an H200 (``studies/record_profilers.py``), attributed: the right sums, or a refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelmark.errors import OffThreadLaunchError, TimingError, UnattributedActivityError
from kernelmark.timing.timers.activity import WorkPerCall
from kernelmark.timing.timers.proton_records import PREPARE_SCOPE, ScopedPass, attribute_scopes, call_scope

FOLDER = Path(__file__).parents[3] / "data" / "profilers"


def recorded(name: str, kernels: int, memsets: int = 0) -> ScopedPass:
    raw = json.loads((FOLDER / f"{name}.json").read_text())
    return ScopedPass(raw["database"], raw["count"], WorkPerCall(kernels, memsets), raw["replays"])


def node(name: str, *children: dict[str, Any], count: int = 0, time: int = 0) -> dict[str, Any]:
    metrics = {"count": count, "time (ns)": time} if time or count else {}
    return {"frame": {"name": name, "type": "function"}, "metrics": metrics, "children": list(children)}


def tree(*children: dict[str, Any], count: int = 1, kernels: int = 1, replays: int = 1) -> ScopedPass:
    return ScopedPass([node("ROOT", *children), {"CUDA": {}}], count, WorkPerCall(kernels), replays)


@pytest.mark.spec("X5")
@pytest.mark.parametrize(
    ("name", "kernels", "memsets", "low", "high"),
    [
        ("proton_add_4_MB", 1, 0, 2_500, 4_500),
        ("proton_three_small", 3, 0, 2_500, 4_500),
        ("proton_matmul_4096_bf16", 1, 1, 160_000, 190_000),
        ("cudagraph_proton_three_small", 3, 0, 2_500, 4_500),
        ("cudagraph_proton_matmul_4096_bf16", 1, 1, 160_000, 190_000),
    ],
)
def test_each_call_is_the_sum_of_its_kernels_and_the_flush_is_in_none(
    name: str, kernels: int, memsets: int, low: int, high: int
) -> None:
    found = attribute_scopes(recorded(name, kernels, memsets))
    assert len(found.device_busy_ns) == 3
    assert all(low < busy < high for busy in found.device_busy_ns)
    assert found.latency_ns == found.device_busy_ns
    assert found.n_kernels == (kernels,) * 3
    assert found.n_memsets == (memsets,) * 3
    assert sum(share.per_call for share in found.kernels) == kernels
    assert not any("reduce_kernel" in share.name for share in found.kernels)


@pytest.mark.spec("X6", "T35")
@pytest.mark.parametrize("name", ["proton_backward", "cudagraph_proton_backward"])
def test_a_backward_is_diagnosed_and_not_mistimed(name: str) -> None:
    with pytest.raises(OffThreadLaunchError, match=r"the scopes of other calls make up for it.*backward"):
        attribute_scopes(recorded(name, 6, 1))


@pytest.mark.spec("X6")
def test_a_kernel_that_proton_missed_is_an_error() -> None:
    with pytest.raises(TimingError, match="3 kernels in the scope of call 1 of 3, where 4 were expected"):
        attribute_scopes(recorded("proton_three_small", 4))


@pytest.mark.spec("X6")
def test_a_scope_that_is_missing_or_empty_is_an_error() -> None:
    kernel = node("k", count=1, time=10)
    for second in ((), (node(call_scope(1)),)):
        with pytest.raises(TimingError, match="0 kernels in the scope of call 2 of 2"):
            attribute_scopes(tree(node(call_scope(0), kernel), *second, count=2))


@pytest.mark.spec("X6")
def test_kernels_without_a_time_are_no_time() -> None:
    with pytest.raises(TimingError, match="0 kernels"):
        attribute_scopes(tree(node(call_scope(0), node("k", count=1, time=0))))


@pytest.mark.spec("X6")
def test_work_outside_all_scopes_is_told_from_work_that_a_call_lacks() -> None:
    kernel = node("k", count=1, time=10)
    with pytest.raises(UnattributedActivityError, match="something else in this process"):
        attribute_scopes(tree(node(call_scope(0), kernel), kernel))
    with pytest.raises(OffThreadLaunchError, match="outside all scopes"):
        attribute_scopes(tree(node(call_scope(0), kernel), kernel, kernels=2))


@pytest.mark.spec("X5")
def test_scopes_of_the_call_itself_and_of_several_places_are_one_call() -> None:
    inner = node("users scope", node("a", count=1, time=30), node("b", count=1, time=10))
    captured = node("<captured_at>", node(call_scope(0), inner))
    found = attribute_scopes(
        tree(
            captured,
            node(call_scope(0), node("a", count=1, time=20)),
            node(PREPARE_SCOPE, node("flush", count=1, time=1000)),
            kernels=3,
        )
    )
    assert found.device_busy_ns == (60,)
    assert [(share.name, share.per_call) for share in found.kernels] == [("a", 2), ("b", 1)]


@pytest.mark.spec("X5")
def test_a_reading_of_replays_is_their_mean() -> None:
    found = attribute_scopes(tree(node(call_scope(0), node("k", count=4, time=100)), replays=4))
    assert found.device_busy_ns == (25,)
