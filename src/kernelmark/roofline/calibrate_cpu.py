"""Measures the ceilings of this CPU, as far as torch reaches them, and keeps them.

A ceiling is the best rate that was ever seen, so a plain loop over the host clock that keeps the fastest pass
is enough here: whatever disturbs a pass only makes it slower. Comparing two implementations takes more than
that, and this module is not for it. What it gives is a ceiling of torch's kernels, not of the processor:
torch's matrix product may stay below the processor's peak (MKL takes a slower path on AMD processors, say),
and a kernel that beats it by more than 5 % is shown as an anomaly that says so.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from time import perf_counter, process_time

from kernelmark.device import Device
from kernelmark.device.cpu_facts import busy_seconds
from kernelmark.device.memory import available_memory
from kernelmark.errors import UnavailableError, UsageError
from kernelmark.records import DeviceRecord
from kernelmark.roofline.calibration_store import store_calibration, stored_calibration
from kernelmark.roofline.model import Calibration, Figure, Profile, Rate
from kernelmark.units import format_bytes, format_percent

__all__ = ["Ceilings", "calibrate_cpu", "cpu_profile", "measure_ceilings"]

_STREAM_BUDGET_S = 0.5  # for each of the three access patterns
_MATMUL_BUDGET_S = 1.0  # for each dtype; three of them, and what is set up around them, stay under 6 s in all
_FEWEST_PASSES = 3
_MOST_TAKEN = 0.2  # the fastest pass outlives some disturbance; at 80 %, float32 read 35 of its 347 GFLOP/s
_SMALLEST_BUFFER = 64 << 20
_LARGEST_SHARE = 8  # at most this part of the free memory
_MATMUL_SIZES = (512, 1024, 1536, 2048, 4096)  # the best size grows with the number of cores
_MATMUL_DTYPES = (Rate.FLOAT32, Rate.BFLOAT16, Rate.FLOAT64)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What was reached: bytes per second by access pattern, operations per second by dtype."""

    bandwidth: dict[str, float]
    flops: dict[Rate, float]
    buffer_bytes: int
    taken_by_others: float | None = None
    """The part of the processors' time meanwhile that went to other processes; ``None`` if nobody says."""


def cpu_profile(device: Device, *, recalibrate: bool = False) -> Profile:
    """Give the profile of this CPU: the stored one, or one that is measured now, in up to 6 s, and stored.

    Raises:
        UsageError: the device is no CPU.
        UnavailableError: other processes took so much of the CPU that the ceilings would be too low.
        ProfileError: the calibration cannot be read or kept.
    """
    record = device.describe()
    if record.kind != "cpu":
        raise UsageError(
            f"{record.name!r} is a {record.kind} device; only a CPU is calibrated by measurement"
        )
    stored = None if recalibrate else stored_calibration(record)
    if stored is not None:
        return stored
    profile = calibrate_cpu(device)
    return replace(profile, path=str(store_calibration(profile, record)))


def calibrate_cpu(device: Device, *, measure: Callable[[DeviceRecord], Ceilings] | None = None) -> Profile:
    """Measure the ceilings of the CPU ``device`` and describe them as a profile.

    Args:
        device: The CPU.
        measure: What measures; another one is for tests.

    Raises:
        UnavailableError: other processes took so much of the CPU that the ceilings would be too low.
    """
    import torch

    record, load = device.describe(), device.telemetry().load_average
    ceilings = (measure or measure_ceilings)(record)
    if ceilings.taken_by_others is not None and ceilings.taken_by_others > _MOST_TAKEN:
        raise UnavailableError(
            f"no ceilings of this CPU: other processes took {format_percent(ceilings.taken_by_others)} of it"
            f" while they were measured, and more than {format_percent(_MOST_TAKEN)} makes them too low;"
            " calibrate on a quiet machine"
        )
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    pattern, bandwidth = max(ceilings.bandwidth.items(), key=lambda item: item[1])
    conditions = {
        "threads": str(record.threads),
        "affinity": ",".join(map(str, record.affinity or ())),
        "torch": str(torch.__version__),
        "capability": record.capability or "",
        "buffer": format_bytes(ceilings.buffer_bytes),
        "load_average": "unknown" if load is None else f"{load:.2f}",
        "taken_by_others": format_percent(ceilings.taken_by_others) or "unknown",
    }
    if ceilings.buffer_bytes <= (record.last_level_cache_bytes or 0):
        conditions["warning"] = "the buffer fits into the last-level cache, so the bandwidth is the cache's"
    return Profile(
        name=f"{record.name}, {record.threads} threads, as measured",
        kind="cpu",
        match=(glob.escape(record.name),),
        bandwidth=Figure(bandwidth, f"best {pattern} rate that torch reached here, {date}"),
        flops={
            rate: Figure(value, f"best {rate.value} matrix product that torch reached here, {date}")
            for rate, value in ceilings.flops.items()
        },
        calibration=Calibration(date, conditions),
    )


def measure_ceilings(device: DeviceRecord) -> Ceilings:
    """Measure on torch's present number of threads."""
    size = _buffer_bytes(device.last_level_cache_bytes or 0, available_memory())
    cpus = device.affinity or ()
    start, own, all_ = perf_counter(), process_time(), busy_seconds(cpus)
    bandwidth, flops = dict(_stream_rates(size)), dict(_matmul_rates())
    wall, own, now = perf_counter() - start, process_time() - own, busy_seconds(cpus)
    others = None if all_ is None or now is None else max(0.0, now - all_ - own) / (wall * len(cpus))
    return Ceilings(bandwidth, flops, size, others)


def _buffer_bytes(last_level: int, free: int | None) -> int:
    """Give twice the last-level cache, so that nothing is found there; at most an eighth of free memory."""
    wanted = max(2 * last_level, _SMALLEST_BUFFER)
    return wanted if free is None else min(wanted, free // _LARGEST_SHARE)


def _stream_rates(size: int) -> Iterator[tuple[str, float]]:
    """Give the rate of each access pattern; each touches all of the buffer, and what it touches counts."""
    import torch

    flat = torch.ones(size // 4 // 6 * 6, dtype=torch.float32)
    to, source = flat.chunk(2)
    out, left, right = flat.chunk(3)
    patterns: dict[str, Callable[[], object]] = {
        "read": lambda: torch.sum(flat),
        "copy": lambda: to.copy_(source),
        "triad": lambda: torch.add(left, right, alpha=0.5, out=out),
    }
    for name, run in patterns.items():
        yield name, flat.nbytes / _best(run, _STREAM_BUDGET_S)


def _matmul_rates() -> Iterator[tuple[Rate, float]]:
    """Give the best rate of a matrix product in each dtype, over the sizes that fit into the budget."""
    import torch

    for rate in _MATMUL_DTYPES:
        best, end = 0.0, perf_counter() + _MATMUL_BUDGET_S
        for size in _MATMUL_SIZES:
            flops = 2 * size**3
            if best and (_FEWEST_PASSES + 1) * flops / best > end - perf_counter():
                break
            # Random numbers: zeros and ones cost less power and would give a ceiling that no data reach.
            left, right = (torch.rand(size, size).to(getattr(torch, rate.value)) for _ in range(2))
            product = partial(torch.mm, left, right, out=torch.empty_like(left))
            best = max(best, flops / _best(product, _MATMUL_BUDGET_S / 8))
        yield rate, best


def _best(run: Callable[[], object], budget_s: float) -> float:
    """Give the shortest time of ``run`` in seconds, over as many passes as the budget allows."""
    run()
    end, best, passes = perf_counter() + budget_s, float("inf"), 0
    while passes < _FEWEST_PASSES or perf_counter() < end:
        start = perf_counter()
        run()
        best = min(best, perf_counter() - start)
        passes += 1
    return best
