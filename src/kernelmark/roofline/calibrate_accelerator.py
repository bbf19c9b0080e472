"""Measures the ceilings of an accelerator, as far as torch's kernels reach them, with events in its own queue.

A ceiling is the best rate that was ever seen, so the fastest pass is kept, as on a CPU; besides it stands the
rate that a product keeps up once power and heat have their say. Rates for which torch has no public product,
float8 and int8, are not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from kernelmark.device import Device
from kernelmark.records import DeviceRecord, Telemetry
from kernelmark.roofline.ceilings import FULL, Ceilings, Effort, measured_profile
from kernelmark.roofline.model import Profile, Rate
from kernelmark.units import NS_PER_MS, NS_PER_S, format_bytes

if TYPE_CHECKING:
    import torch

__all__ = ["Timed", "accelerator_measured", "measure_accelerator"]

Timed = Callable[[Callable[[], object]], float]
"""Runs a callable, waits for the device, and gives the seconds that the device took."""

_FEWEST_PASSES = 3
_STREAM_BYTES = 2 << 30  # 0.45 ms at 4.8 TB/s, so that the 1.3 µs of an empty pair of events do not count
_CACHES = 8  # the buffer is at least this many times the last cache
_LARGEST_SHARE = 8  # and at most this part of the device's memory
_MATMUL_SIZES = (2048, 4096, 8192)
_DTYPES: dict[str, tuple[Rate, ...]] = {
    "cuda": (Rate.FLOAT64, Rate.FLOAT32, Rate.TF32, Rate.FLOAT16, Rate.BFLOAT16),
}
_DTYPES_ELSEWHERE = (Rate.FLOAT32, Rate.FLOAT16, Rate.BFLOAT16)  # not every accelerator has float64


def measure_accelerator(device: Device, effort: Effort = FULL, *, timed: Timed | None = None) -> Ceilings:
    """Measure the ceilings of ``device``.

    Args:
        device: An accelerator.
        effort: How long.
        timed: What reads a call; torch's events without it.
    """
    record, read = device.describe(), timed or _events(device)
    size = _buffer_bytes(record.last_level_cache_bytes or 0, record.memory_bytes)
    bandwidth = dict(_stream_rates(device.torch_name, size, partial(_best, read, effort.stream_s)))
    device.release_memory()
    short: dict[Rate, float] = {}
    sustained: dict[Rate, float] = {}
    for rate in _DTYPES.get(device.kind, _DTYPES_ELSEWHERE):
        with _float32_products("high" if rate is Rate.TF32 else "highest"):
            flops, product, best_s = _best_product(device.torch_name, rate, read, effort)
            short[rate] = flops / best_s
            if effort.sustained_s:
                sustained[rate] = flops * _kept_up(product, read, effort.sustained_s, best_s)
        device.release_memory()
    return Ceilings(bandwidth, short, size, None, sustained)


def accelerator_measured(
    record: DeviceRecord, ceilings: Ceilings, before: Telemetry, after: Telemetry
) -> Profile:
    """Describe what was measured now as the profile of this device, with its conditions."""
    import torch

    conditions = {
        "torch": str(torch.__version__),
        "toolkit": record.details.get("toolkit", ""),
        "driver": record.driver or "unknown",
        "buffer": format_bytes(ceilings.buffer_bytes),
    }
    for name, state in (("before", before), ("after", after)):
        if state.clock_mhz is not None:
            conditions[f"clock_{name}"] = f"{state.clock_mhz:.0f} MHz"
        if state.power_w is not None:
            conditions[f"power_{name}"] = f"{state.power_w:.0f} W"
        if state.throttle_reasons:
            conditions[f"throttle_reasons_{name}"] = ", ".join(state.throttle_reasons)
    if before.other_processes:
        conditions["other_processes"] = ", ".join(before.other_processes)
    return measured_profile(record, ceilings, name=f"{record.name}, as measured", conditions=conditions)


def _buffer_bytes(last_level: int, memory: int | None) -> int:
    wanted = max(_CACHES * last_level, _STREAM_BYTES)
    return wanted if memory is None else min(wanted, memory // _LARGEST_SHARE)


def _stream_rates(
    where: str, size: int, best: Callable[[Callable[[], object]], float]
) -> Iterator[tuple[str, float]]:
    """Give the rate of each access pattern; each touches all of the buffer, and what it touches counts."""
    import torch

    flat = torch.ones(size // 4 // 6 * 6, dtype=torch.float32, device=where)
    total = torch.empty((), dtype=torch.float32, device=where)
    to, source = flat.chunk(2)
    out, left, right = flat.chunk(3)
    patterns: dict[str, Callable[[], object]] = {
        "read": lambda: torch.sum(flat, 0, out=total),
        "write": lambda: flat.fill_(1.0),
        "copy": lambda: to.copy_(source),
        "triad": lambda: torch.add(left, right, alpha=0.5, out=out),
    }
    for name, run in patterns.items():
        yield name, flat.nbytes / best(run)


def _best_product(
    where: str, rate: Rate, read: Timed, effort: Effort
) -> tuple[int, Callable[[], object], float]:
    """Give the operations of the product with the best rate, the product, and its shortest time."""
    import torch

    dtype: torch.dtype = getattr(torch, "float32" if rate is Rate.TF32 else rate.value)
    found: tuple[int, Callable[[], object], float] | None = None
    end = perf_counter() + effort.matmul_s
    for size in _MATMUL_SIZES:
        flops = 2 * size**3
        if found and (_FEWEST_PASSES + 1) * flops * found[2] / found[0] > end - perf_counter():
            break
        # Random numbers: zeros and ones cost less power and would give a ceiling that no data reach.
        left, right = (torch.rand(size, size, device=where, dtype=torch.float32).to(dtype) for _ in range(2))
        run = partial(torch.mm, left, right, out=torch.empty_like(left))
        seconds = _best(read, effort.matmul_s / len(_MATMUL_SIZES), run)
        if found is None or flops / seconds > found[0] / found[2]:
            found = flops, run, seconds
    if found is None:
        raise ValueError("no size of a matrix product is given")
    return found


def _best(read: Timed, budget_s: float, run: Callable[[], object]) -> float:
    """Give the shortest time of ``run`` in seconds, over as many passes as the budget allows."""
    read(run)  # loads and chooses the kernel
    end, best, passes = perf_counter() + budget_s, float("inf"), 0
    while passes < _FEWEST_PASSES or perf_counter() < end:
        best = min(best, read(run))
        passes += 1
    return best


def _kept_up(run: Callable[[], object], read: Timed, budget_s: float, once_s: float) -> float:
    """Give how many times a second ``run`` ends, over the second half of ``budget_s`` without a pause.

    Twenty stretches, so that waiting for each costs no more than some microseconds of a tenth of a second.
    """
    per_stretch = max(1, round(budget_s / 20 / once_s))

    def stretch() -> None:
        for _ in range(per_stretch):
            run()

    seconds = [read(stretch) for _ in range(20)][10:]
    return per_stretch * len(seconds) / sum(seconds)


def _events(device: Device) -> Timed:
    import torch

    where = torch.device(device.torch_name)
    start, end = (torch.Event(device=where, enable_timing=True) for _ in range(2))

    def read(run: Callable[[], object]) -> float:
        stream = torch.accelerator.current_stream(where)
        start.record(stream)
        run()
        end.record(stream)
        device.synchronize()
        return start.elapsed_time(end) * NS_PER_MS / NS_PER_S

    return read


@contextmanager
def _float32_products(precision: str) -> Iterator[None]:
    """Let products of float32 run as TF32 (``high``) or not (``highest``), and as before afterwards."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
