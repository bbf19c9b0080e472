"""Kernels of a made-up run of a suite, and the rows that their records hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelmark.kernelbench.statuses import Status
from kernelmark.records import Cache, Check, OutputCheck, PassRecord, Ratio, Role, Row, Statistics, Timing


@dataclass(frozen=True)
class Kernel:
    """One kernel of a made-up run; without a time it has no records."""

    pipeline: str = "matmul"
    status: Status = Status.VERIFIED
    message: str = ""
    ours_ns: float | None = 1000.0
    ratios: Mapping[str, Ratio] | None = None
    """By baseline, which takes that many times as long."""
    hollow: str = ""
    """Why its check vouches for nothing."""
    absent: str = ""
    """Why inductor could not be had."""


def ratio(low: float, value: float, high: float) -> Ratio:
    verdict = "faster" if low > 1 else "slower" if high < 1 else "undecided"
    return Ratio(value=value, low=low, high=high, blocks=10, verdict=verdict)


def timing(ns: float) -> Timing:
    times = Statistics(samples=20, median_ns=ns, mean_ns=ns, min_ns=ns, max_ns=ns)
    passes = (PassRecord(block=0, position=0, latency_ns=(ns,), device_busy_ns=(ns,)),)
    return Timing(timer="host", cache=Cache.COLD, device_busy=times, latency=times, passes=passes)


def rows_of(kernel: Kernel) -> list[Row]:
    output = OutputCheck(
        output="output",
        dtype="float32",
        shape=(4,),
        tolerance="normalised rtol=0.0001: RMS error up to 5e-05, each error up to 0.1",
        passed=True,
        total=4,
        mismatched=0,
        max_abs_error=1e-6,
        error_over_tolerance=0.25,
    )
    common: dict[str, Any] = {"case": "a case", "params": {"draws": "two draws", "threads": 2}}
    assert kernel.ours_ns is not None
    made = [
        Row(
            implementation="mlir",
            role=Role.OURS,
            check=Check.UNVERIFIED if kernel.hollow else Check.VERIFIED,
            note=kernel.hollow,
            outputs=(output,),
            timing=timing(kernel.ours_ns),
            **common,
        )
    ]
    for name, each in (kernel.ratios or {}).items():
        its = timing(kernel.ours_ns * each.value)
        made.append(
            Row(
                implementation=name,
                role=Role.BASELINE,
                check=Check.VERIFIED,
                timing=its,
                ratio=each,
                **common,
            )
        )
    if kernel.absent:
        check = Check.UNAVAILABLE
        made.append(
            Row(implementation="inductor", role=Role.BASELINE, check=check, note=kernel.absent, **common)
        )
    return made
