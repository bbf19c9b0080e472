"""What ``two_gpus.py`` expects of what the ranks told. Pure: it runs nothing.

Each part's judge yields what is looked at, what is expected, what was found, and whether that holds.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

NVLINK_BYTES_PER_S = 450e9
"""One direction of an H200's NVLink: nothing crosses faster."""
DENSE_BF16_FLOPS = 989e12
LATE_US = 2000.0

Findings = Iterator[tuple[str, str, str, bool]]


@dataclass(slots=True)
class Ran:
    """What the ranks of one part told, and how their processes ended."""

    told: list[dict[str, list[dict[str, Any]]]] = field(default_factory=list)
    """By rank, then by step, in order."""
    codes: list[int | None] = field(default_factory=list)
    tails: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def one(self, rank: int, step: str) -> dict[str, Any]:
        """Give what a rank told of a step, which it must have told once."""
        found = self.told[rank].get(step, [])
        if not found:
            raise LookupError(f"rank {rank} told nothing of {step!r}; it told {list(self.told[rank])}")
        return found[-1]

    def result(self, step: str) -> dict[str, Any]:
        """Give the result of a step, which must be the same on both ranks."""
        first, second = (self.one(rank, step) for rank in range(2))
        for found in (first, second):
            if "error" in found:
                raise LookupError(f"{step!r} ended with {found['error']}: {found['message'][:400]}")
        if any(first[key] != second[key] for key in ("impls", "ranks")):
            raise LookupError(f"{step!r}: the ranks do not have the same result")
        return first


def topology(ran: Ran, gpu: bool) -> Findings:
    found = ran.one(0, "topology")
    for key in ("gpus", "matrix", "links"):
        print(found.get(key, ""), flush=True)
    told = {
        key: found.get(key)
        for key in ("python", "torch", "triton", "nccl", "peer_access", "nccl_environment")
    }
    yield "versions", "told", json.dumps(told), True
    if gpu:
        multicast = found["nccl_environment"].get("NCCL_NVLS_ENABLE")
        yield (
            "NVLink multicast is off",
            "NCCL_NVLS_ENABLE=0",
            f"NCCL_NVLS_ENABLE={multicast}",
            multicast == "0",
        )


def collectives(ran: Ran, gpu: bool) -> Findings:
    total = ran.one(1, "answers")
    yield "answers", "those of torch on one device", str(total)[:200], total.get("total") == [1.0] * 8
    result = ran.result("collectives")
    names = list(result["impls"])
    timer = "kineto" if gpu else "host"
    yield "timer", timer, result["timer"], result["timer"] == timer
    yield (
        "built",
        "all of them",
        f"{names}, errors {result['errors']}",
        not result["errors"] and len(names) > 2,
    )
    sizes = ran.one(0, "sizes")
    events = ran.one(0, "by events")["us"] if gpu else {}
    bounds = {
        "all-reduce": sizes["all_reduce_bytes"] / NVLINK_BYTES_PER_S * 1e6,
        "reduce-scatter, then all-gather": sizes["all_reduce_bytes"] / NVLINK_BYTES_PER_S * 1e6,
        "mm": sizes["flops"] / DENSE_BF16_FLOPS * 1e6,
        "all-gather, then mm": sizes["flops"] / DENSE_BF16_FLOPS * 1e6
        + sizes["gathered_bytes"] / 2 / NVLINK_BYTES_PER_S * 1e6,
        "all-gather in halves, overlapped with mm": sizes["flops"] / DENSE_BF16_FLOPS * 1e6,
    }
    for name, us in result["impls"].items():
        told = result["ranks"][name]
        rounds, medians = us_list(result["round_samples"][name]), us_list(told["median"])
        where = f"rounds {rounds}, medians {medians}, gaps {told['launch_gap']}"
        if not gpu:
            yield name, "above 0", f"{us:.1f} µs; {where}", us > 0
            continue
        low, high = max(bounds[name], 0.6 * events[name]), 1.6 * events[name] + 30
        why = f"link and cores allow {bounds[name]:.0f}; events, 20 in a row: {events[name]:.0f}"
        expected = f"{low:.0f} to {high:.0f} µs ({why})"
        yield name, expected, f"{us:.1f} µs; {where}", low <= us <= high
    if gpu:
        protocol = result["protocol"]
        yield "flush", "8 GB", str(protocol["flush_bytes"]), protocol["flush_bytes"] >= 8_000_000_000
        yield (
            "cold over warm",
            "above 1.3",
            str(protocol["probe"]["cold_over_warm"]),
            not protocol["probe"]["doubt"],
        )
    for name in ("event", "proton", "cudagraph_proton", "cupti", "host", "kineto"):
        told = [ran.one(rank, f"timer {name}") for rank in range(2)]
        if name == timer:
            yield f"timer={name}", "a time", f"{told[0].get('us')}", all("us" in each for each in told)
        else:
            refused = all(each.get("error") == "UsageError" for each in told)
            yield (
                f"timer={name}",
                "refused on both ranks",
                told[0].get("message", str(told[0]))[:120],
                refused,
            )


def skew(ran: Ran, gpu: bool) -> Findings:
    delay = ran.one(1, "delay")
    spin_us = delay["device_us"]
    devices, hosts = ran.result("barrier of the devices"), ran.result("barrier that the hosts wait for")
    for label, result in (("devices", devices), ("hosts", hosts)):
        for name, us in result["impls"].items():
            told = result["ranks"][name]
            gaps = us_list(told["launch_gap"][0]) if told["launch_gap"] else "none"
            print(
                f"    barrier of the {label}: {name}: {us:.1f} µs, medians {us_list(told['median'])},"
                f" launch gaps {gaps}, slowest rank {told['slowest_rank']} {told['times_slowest']}",
                flush=True,
            )
    plain, late = devices["ranks"]["mm"], devices["ranks"]["mm, rank 1 late on the device"]
    yield (
        "the slowest rank is named",
        "rank 1, of all 30 samples",
        f"rank {late['slowest_rank']}, {late['times_slowest']}",
        (late["slowest_rank"] == 1 and late["times_slowest"][1] >= (30 if gpu else 25)),
    )
    more = late["median"][1] - plain["median"][1]
    yield from near("rank 1's span holds its delay on the device", spin_us, more, 0.1 if gpu else 1.0, 50)
    yield from near("rank 0's span does not", plain["median"][0], late["median"][0], 0.3 if gpu else 5.0, 20)
    if not gpu:
        return
    name = "mm, rank 1 late on the host, mm"
    yield from gap_of("launch gap of rank 1 behind the GPU sleep", devices, name, 0, 300)
    yield from gap_of(
        "launch gap of rank 1 where the hosts' barrier drains it", hosts, name, 0.9 * LATE_US, 2 * LATE_US
    )
    yield from gap_of("launch gap of rank 0, which was not late", hosts, name, 0, 300, rank=0)
    alone = devices["impls"]["all-reduce"]
    name = "rank 1 late on the host, all-reduce"
    yield from near("a host's delay hides behind the GPU sleep", alone, devices["impls"][name], 0.5, 200)
    yield from near(
        "where the hosts' barrier drains it, the other rank waits",
        alone + LATE_US,
        hosts["impls"][name],
        0.2,
        200,
    )
    waits = hosts["ranks"][name]
    yield (
        "and is the slowest: the one that waits",
        "rank 0",
        f"rank {waits['slowest_rank']}, medians {us_list(waits['median'])}",
        (waits["slowest_rank"] == 0),
    )
    name = "rank 1 late on the device, all-reduce"
    yield from near(
        "a device's delay is in the collective", alone + spin_us, devices["impls"][name], 0.1, 100
    )
    for rank in range(2):
        gaps = [each["ranks"]["twenty small kernels"]["launch_gap"][0][rank] for each in (devices, hosts)]
        yield (
            f"twenty small kernels on rank {rank}: launch gap",
            "less behind the GPU sleep than where it is drained",
            f"{gaps[0]:.1f} and {gaps[1]:.1f} µs",
            gaps[0] < gaps[1],
        )


def failures(ran: Ran, gpu: bool) -> Findings:
    built = ran.result("a builder fails")
    wanted = {"broken": "rank 1: OSError: no such file"}
    yield (
        "a builder fails on rank 1",
        f"{wanted}, and mm timed",
        f"{built['errors']}, {list(built['impls'])}",
        (built["errors"] == wanted and list(built["impls"]) == ["mm"]),
    )
    told = [ran.one(rank, "a launch raises") for rank in range(2)]
    yield from raised("a launch raises on rank 1", told)
    yield "the context works afterwards", "a time", f"{ran.result('afterwards')['impls']}", True
    told = [ran.one(rank, "a launch raises before its collective") for rank in range(2)]
    if not gpu:
        yield (
            "rank 0 is told why its launch got no answer",
            "boom",
            str(told[0]["notes"]),
            "boom" in str(told[0]["notes"]),
        )
        return
    yield from raised("a launch raises on rank 1 while the other's device waits for it", told)
    waited = told[0]["at"] - ran.one(1, "acts")["at"]
    yield "rank 0 is freed", "within 15 s", f"after {waited:.1f} s", waited < 15
    again = [ran.one(rank, "after that") for rank in range(2)]
    lost = all("have lost each other" in each.get("message", "") for each in again)
    yield (
        "the context is of no more use",
        "an error on both",
        again[0].get("message", str(again[0]))[:200],
        lost,
    )


def raised(what: str, told: list[dict[str, Any]]) -> Findings:
    errors = [f"{each.get('error')}: {each.get('message', '')[:200]}" for each in told]
    yield f"{what}: rank 1", "ValueError: boom", errors[1], errors[1] == "ValueError: boom"
    wanted = "DistributedError: rank 1 left the benchmark: ValueError: boom"
    yield f"{what}: rank 0", wanted, errors[0], errors[0] == wanted
    yield from kept(what, told[0])


def kept(what: str, told: dict[str, Any]) -> Findings:
    impls = told.get("measured", {}).get("impls", {})
    yield f"{what}: what was measured is kept", "mm", str(impls), list(impls) == ["mm"]


def killed(ran: Ran, gpu: bool) -> Findings:
    told = ran.one(0, "a rank is killed")
    yield "rank 1", f"exit code {-signal.SIGKILL:d}", str(ran.codes[1]), ran.codes[1] == -signal.SIGKILL
    yield from ended("a rank is killed", told, "rank 1 of 2 died: its process has ended")
    waited = told["at"] - ran.one(1, "acts")["at"]
    yield "rank 0 ends", "within 15 s", f"after {waited:.1f} s", waited < 15
    yield from kept("a rank is killed", told)


def hangs(ran: Ran, gpu: bool) -> Findings:
    told = ran.one(0, "a rank hangs")
    yield "rank 1", "still there", str(ran.codes[1]), ran.codes[1] is None
    if gpu:
        yield from ended("a rank hangs", told, "rank 1 of 2 does not answer")
    else:
        yield (
            "rank 0 names rank 1",
            "rank 1 of 2",
            str(told["notes"]),
            "rank 1 of 2 does not answer" in str(told["notes"]),
        )
    waited = told["at"] - ran.one(1, "acts")["at"]
    yield "rank 0 ends", "8 to 27 s later (timeout_s=8)", f"after {waited:.1f} s", 7.5 < waited < 27
    yield from kept("a rank hangs", told)


def ended(what: str, told: dict[str, Any], start: str) -> Findings:
    found = f"{told.get('error')}: {told.get('message', '')}"
    yield (
        f"{what}: rank 0",
        f"DistributedError: {start}",
        found[:300],
        found.startswith(f"DistributedError: {start}"),
    )


def control(ran: Ran, gpu: bool) -> Findings:
    for timer in ("device_events", "cupti") if gpu else ("host",):
        for what in ("softmax", "matmul"):
            yield from apart(f"{timer}, {what}", ran.told[0].get(f"{timer}, {what}", []), gpu)


def apart(name: str, steps: list[dict[str, Any]], gpu: bool) -> Findings:
    """Judge one call: twice on one device, then three times on both."""
    for told in steps:
        if "error" in told:
            yield name, "a time", f"{told['error']}: {told['message'][:300]}", False
        elif "same_device" in told:
            ratio = told["same_device"]
            near_one = not gpu or abs(ratio["value"] - 1) < 0.01
            yield f"{name}: the same call twice on one device", "within 1 %", shown(ratio), near_one
        else:
            ratio = told["two_devices"]
            differ = abs(ratio["value"] - 1)
            holds = not gpu or (differ < 0.1 and (differ < 0.02 or ratio["verdict"] != "undecided"))
            found = f"{shown(ratio)}; {us_list(told['us'])}; SM clocks {told['clocks_mhz']} MHz"
            expected = "within 10 %, and an interval without 1 where they are 2 % apart"
            yield f"{name}: cuda:1 over cuda:0", expected, found, holds
    times = sum("us" in told for told in steps)
    yield f"{name}: timed", "once on one device and three times on both", f"{times} times", times == 4


def near(what: str, wanted: float, found: float, share: float, floor: float) -> Findings:
    margin = share * wanted + floor
    yield what, f"{wanted:.1f} µs ± {margin:.0f}", f"{found:.1f} µs", abs(found - wanted) <= margin


def gap_of(what: str, result: dict[str, Any], name: str, low: float, high: float, rank: int = 1) -> Findings:
    gap = result["ranks"][name]["launch_gap"][0][rank]
    yield what, f"{low:.0f} to {high:.0f} µs", f"{gap:.1f} µs", low <= gap <= high


def shown(ratio: dict[str, Any]) -> str:
    low, high = ratio["low"] or math.nan, ratio["high"] or math.nan
    return f"{ratio['value']:.4f} [{low:.4f}, {high:.4f}], {ratio['verdict']}"


def us_list(values: list[float]) -> str:
    return "[" + ", ".join(f"{value:.1f}" for value in values) + "] µs"
