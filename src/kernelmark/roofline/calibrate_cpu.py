"""Measures the ceilings of this CPU, as far as torch reaches them, and keeps them.

A ceiling is the best rate that was ever seen, so a plain loop over the host clock that keeps the fastest pass
is enough here: whatever disturbs a pass only makes it slower. Comparing two implementations takes more than
that, and this module is not for it. What it gives is a ceiling of torch's kernels, not of the processor:
torch's matrix product may stay below the processor's peak (MKL takes a slower path on AMD processors, say),
and a kernel that beats it by more than 5 % is shown as an anomaly that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from time import perf_counter, process_time

from kernelmark.device import Device
from kernelmark.device.cpu_facts import busy_seconds
from kernelmark.device.memory import available_memory
from kernelmark.errors import UnavailableError, UsageError
from kernelmark.records import DeviceRecord
from kernelmark.roofline.calibration_store import store_calibration, stored_calibration
from kernelmark.roofline.ceilings import SHORT, Ceilings, Effort, measured_profile
from kernelmark.roofline.model import Profile, Rate
from kernelmark.units import format_bytes, format_percent

__all__ = ["MOST_TAKEN", "calibrate_cpu", "cpu_measured", "cpu_profile", "measure_ceilings", "refuse_busy"]

_FEWEST_PASSES = 3
MOST_TAKEN = 0.2  # the fastest pass outlives some disturbance; at 80 %, float32 read 35 of its 347 GFLOP/s
_SMALLEST_BUFFER = 64 << 20
_LARGEST_SHARE = 8  # at most this part of the free memory
_MATMUL_SIZES = (512, 1024, 1536, 2048, 4096)  # the best size grows with the number of cores
_MATMUL_DTYPES = (Rate.FLOAT32, Rate.BFLOAT16, Rate.FLOAT64)


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
    record, load = device.describe(), device.telemetry().load_average
    ceilings = (measure or measure_ceilings)(record)
    refuse_busy(ceilings)
    return cpu_measured(record, ceilings, load)


def cpu_measured(record: DeviceRecord, ceilings: Ceilings, load: float | None) -> Profile:
    """Describe what was measured now as the profile of this CPU, with its conditions."""
    name = f"{record.name}, {record.threads} threads, as measured"
    return measured_profile(record, ceilings, name=name, conditions=_conditions(record, ceilings, load))


def refuse_busy(ceilings: Ceilings) -> None:
    """Refuse ceilings that other processes made too low.

    Raises:
        UnavailableError: they took more than a fifth of the CPU.
    """
    if ceilings.taken_by_others is not None and ceilings.taken_by_others > MOST_TAKEN:
        raise UnavailableError(
            f"no ceilings of this CPU: other processes took {format_percent(ceilings.taken_by_others)} of it"
            f" while they were measured, and more than {format_percent(MOST_TAKEN)} makes them too low;"
            " calibrate on a quiet machine"
        )


def _conditions(record: DeviceRecord, ceilings: Ceilings, load: float | None) -> dict[str, str]:
    import torch

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
    return conditions


def measure_ceilings(device: DeviceRecord, effort: Effort = SHORT) -> Ceilings:
    """Measure on torch's present number of threads."""
    size = _buffer_bytes(device.last_level_cache_bytes or 0, available_memory())
    cpus = device.affinity or ()
    start, own, all_ = perf_counter(), process_time(), busy_seconds(cpus)
    bandwidth = dict(_stream_rates(size, effort.stream_s))
    rates = {rate: (short, kept) for rate, short, kept in _matmul_rates(effort)}
    wall, own, now = perf_counter() - start, process_time() - own, busy_seconds(cpus)
    others = None if all_ is None or now is None else max(0.0, now - all_ - own) / (wall * len(cpus))
    return Ceilings(
        bandwidth,
        {rate: short for rate, (short, _) in rates.items()},
        size,
        others,
        {rate: kept for rate, (_, kept) in rates.items() if kept is not None},
    )


def _buffer_bytes(last_level: int, free: int | None) -> int:
    """Give twice the last-level cache, so that nothing is found there; at most an eighth of free memory."""
    wanted = max(2 * last_level, _SMALLEST_BUFFER)
    return wanted if free is None else min(wanted, free // _LARGEST_SHARE)


def _stream_rates(size: int, budget_s: float) -> Iterator[tuple[str, float]]:
    """Give the rate of each access pattern; each touches all of the buffer, and what it touches counts."""
    import torch

    flat = torch.ones(size // 4 // 6 * 6, dtype=torch.float32)
    to, source = flat.chunk(2)
    out, left, right = flat.chunk(3)
    patterns: dict[str, Callable[[], object]] = {
        "read": lambda: torch.sum(flat),
        "write": lambda: flat.fill_(1.0),
        "copy": lambda: to.copy_(source),
        "triad": lambda: torch.add(left, right, alpha=0.5, out=out),
    }
    for name, run in patterns.items():
        yield name, flat.nbytes / _best(run, budget_s)


def _matmul_rates(effort: Effort) -> Iterator[tuple[Rate, float, float | None]]:
    """Give the best rate of a matrix product in each dtype, over the sizes that fit, and the rate kept up."""
    import torch

    for rate in _MATMUL_DTYPES:
        best, end = 0.0, perf_counter() + effort.matmul_s
        flops, product = 0, partial(_nothing)
        for size in _MATMUL_SIZES:
            count = 2 * size**3
            if best and (_FEWEST_PASSES + 1) * count / best > end - perf_counter():
                break
            # Random numbers: zeros and ones cost less power and would give a ceiling that no data reach.
            left, right = (torch.rand(size, size).to(getattr(torch, rate.value)) for _ in range(2))
            run = partial(torch.mm, left, right, out=torch.empty_like(left))
            reached = count / _best(run, effort.matmul_s / 8)
            if reached > best:
                best, flops, product = reached, count, run
        yield rate, best, flops * _kept_up(product, effort.sustained_s) if effort.sustained_s else None


def _kept_up(run: Callable[[], object], budget_s: float) -> float:
    """Give how many times a second ``run`` ends, over the second half of ``budget_s`` without a pause."""
    half = perf_counter() + budget_s / 2
    while perf_counter() < half:
        run()
    passes, start = 0, perf_counter()
    while not passes or perf_counter() - start < budget_s / 2:
        run()
        passes += 1
    return passes / (perf_counter() - start)


def _nothing() -> None:
    """Stand for the product before the first one is measured."""


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
