"""Measures the ceilings of a device: torch's access patterns and products, and on a CPU the processor's own loops.

A ceiling is the best rate that was ever seen, so a plain loop over one clock that keeps the fastest pass is enough
here: whatever disturbs a pass only makes it slower. Comparing two implementations takes more than that, and this module
is not for it. Besides the best product stands the rate that it keeps up once power and heat have their say.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from kernelmark.calibration.processor import Loop, multiply_add_rates
from kernelmark.device import Device
from kernelmark.device.cpu_facts import busy_seconds
from kernelmark.device.memory import available_memory
from kernelmark.errors import UnavailableError
from kernelmark.records import DeviceRecord, Telemetry
from kernelmark.roofline import Calibration, Figure, Profile, Rate
from kernelmark.units import NS_PER_MS, NS_PER_S, format_bytes, format_percent

if TYPE_CHECKING:
    import torch

__all__ = [
    "FULL",
    "MOST_TAKEN",
    "QUICK",
    "SHORT",
    "Ceilings",
    "Effort",
    "Timed",
    "measure_ceilings",
    "measured_profile",
    "refuse_busy",
]

Timed = Callable[[Callable[[], object]], float]
"""Runs a callable, waits for the device, and gives the seconds that it took."""

MOST_TAKEN = 0.2  # the fastest pass outlives some disturbance; at 80 %, float32 read 35 of its 347 GFLOP/s
_FEWEST_PASSES = 3
_MIB = 1 << 20
# The smallest buffer, the least multiple of the last cache, the sizes of products, and what is multiplied. 2 GiB are
# 0.45 ms at 4.8 TB/s, so that the 1.3 µs of an empty pair of events do not count; the best size of a product grows with
# the number of cores; not every accelerator has float64.
_CPU = (64 * _MIB, 2, (512, 1024, 1536, 2048, 4096), (Rate.FLOAT32, Rate.BFLOAT16, Rate.FLOAT64))
_GPU = (2048 * _MIB, 8, (2048, 4096, 8192), (Rate.FLOAT32, Rate.FLOAT16, Rate.BFLOAT16))
_CUDA = (*_GPU[:3], tuple(Rate))
_NARROW = frozenset({Rate.FLOAT8, Rate.INT8})
"""Torch's products of these have no public name, and older cards none at all: what is refused is not measured.

They are shown, and are no ceilings of a GPU: on an H200 the int8 one reaches 954 of 1979 TFLOP/s, and a right kernel
above it would be called impossible.
"""
_LARGEST_SHARE = 8  # of the memory, or of what is free of a CPU's, goes to the buffer at most


@dataclass(frozen=True, slots=True)
class Effort:
    """Seconds for each access pattern, for the best product of each dtype, and for the product kept up."""

    stream_s: float
    matmul_s: float
    sustained_s: float = 0.0
    """0 measures no sustained rate."""


SHORT = Effort(stream_s=0.5, matmul_s=1.0)
"""What a run of benchmarks may cost when it meets a CPU for the first time: under 8 s in all."""

FULL = Effort(stream_s=0.5, matmul_s=1.0, sustained_s=2.0)
"""2 s of one product are enough for a GPU's power cap to lower its clock: it does within the first second."""

QUICK = Effort(stream_s=0.02, matmul_s=0.05, sustained_s=0.1)
"""Shows that measuring works; too short for ceilings that are worth keeping."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What was reached: bytes per second by access pattern, operations per second by dtype."""

    bandwidth: dict[str, float]
    flops: dict[Rate, float]
    """Of torch's best product."""
    buffer_bytes: int
    taken_by_others: float | None = None
    """The part of the processors' time meanwhile that went to other processes; ``None`` if nobody says."""
    sustained: dict[Rate, float] = field(default_factory=dict)
    """Operations per second over the second half of a product kept up; what power and heat leave."""
    loops: Mapping[Rate, Loop] = field(default_factory=dict)
    """Of the processor's own loops."""

    def measured(self) -> dict[str, float]:
        """Give every figure under a name that ends with its unit, where it has one."""
        return {
            **{f"{pattern}_bytes_per_s": value for pattern, value in self.bandwidth.items()},
            **{f"loop_{rate.value}_flops_per_s": loop.per_s for rate, loop in self.loops.items()},
            **{f"short_{rate.value}_flops_per_s": value for rate, value in self.flops.items()},
            **{f"sustained_{rate.value}_flops_per_s": value for rate, value in self.sustained.items()},
            **({} if self.taken_by_others is None else {"taken_by_others": self.taken_by_others}),
        }


def measure_ceilings(device: Device, effort: Effort = SHORT, *, timed: Timed | None = None) -> Ceilings:
    """Measure ``device``; a CPU on torch's present number of threads.

    Args:
        device: A CPU or an accelerator.
        effort: How long.
        timed: What reads a call; the host's clock on a CPU and torch's events elsewhere without it.
    """
    record = device.describe()
    host = record.kind == "cpu"
    smallest, caches, sizes, rates = _CPU if host else _CUDA if record.kind == "cuda" else _GPU
    memory = available_memory() if host else record.memory_bytes
    size = _buffer_bytes(smallest, caches, record.last_level_cache_bytes or 0, memory)
    read = timed or (_host_time if host else _events(device))
    cpus = (record.affinity or ()) if host else ()
    begin, own, all_ = perf_counter(), process_time(), busy_seconds(cpus)
    bandwidth = dict(_stream_rates(device.torch_name, size, partial(_best, read, effort.stream_s)))
    device.release_memory()
    short: dict[Rate, float] = {}
    sustained: dict[Rate, float] = {}
    for rate in rates:
        refused = (RuntimeError, AttributeError) if rate in _NARROW else ()
        with suppress(*refused), _float32_products("high" if rate is Rate.TF32 else "highest"):
            flops, product, best_s = _best_product(device.torch_name, rate, sizes, read, effort)
            short[rate] = flops / best_s
            if effort.sustained_s:
                sustained[rate] = flops * _kept_up(product, read, effort.sustained_s, best_s)
        device.release_memory()
    wall, own, now = perf_counter() - begin, process_time() - own, busy_seconds(cpus)
    others = None if all_ is None or now is None else max(0.0, now - all_ - own) / (wall * len(cpus))
    loops = multiply_add_rates(record.threads or 1, effort.matmul_s / 4) if host else {}
    return Ceilings(bandwidth, short, size, others, sustained, loops)


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


def measured_profile(
    device: DeviceRecord, ceilings: Ceilings, before: Telemetry, after: Telemetry | None = None
) -> Profile:
    """Describe ``ceilings``, measured now: the best access pattern, the best rate of each dtype, the conditions."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    pattern, bandwidth = max(ceilings.bandwidth.items(), key=lambda item: item[1])
    threads = f", {device.threads} threads" if device.kind == "cpu" else ""
    conditions = _conditions_of_cpu(device, ceilings) if device.kind == "cpu" else _conditions_of(device)
    measured = ceilings.measured()
    if before.load_average is not None:
        measured["load_average"] = before.load_average
    for name, state in (("before", before), ("after", after or Telemetry())):
        conditions |= _state(name, state)
    return Profile(
        name=f"{device.name}{threads}, as measured",
        kind=device.kind,
        match=(glob.escape(device.name),),
        bandwidth=Figure(bandwidth, f"best {pattern} rate that torch reached here, {date}"),
        flops={
            rate: _ceiling(rate, ceilings, date)
            for rate in (*ceilings.flops, *ceilings.loops)
            if device.kind == "cpu" or rate not in _NARROW
        },
        calibration=Calibration(date, conditions | {"buffer": format_bytes(ceilings.buffer_bytes)}, measured),
    )


def _ceiling(rate: Rate, ceilings: Ceilings, date: str) -> Figure:
    product = max(ceilings.flops.get(rate, 0.0), ceilings.sustained.get(rate, 0.0))
    loop = ceilings.loops.get(rate)
    if loop is not None and loop.per_s >= product:
        return Figure(
            loop.per_s, f"fastest {rate.value} multiply-adds of this processor ({loop.instruction}), {date}"
        )
    return Figure(product, f"best {rate.value} matrix product that torch reached here, {date}")


def _conditions_of_cpu(device: DeviceRecord, ceilings: Ceilings) -> dict[str, str]:
    import torch

    conditions = {
        "threads": str(device.threads),
        "affinity": ",".join(map(str, device.affinity or ())),
        "torch": str(torch.__version__),
        "capability": device.capability or "",
        "taken_by_others": format_percent(ceilings.taken_by_others) or "unknown",
        "multiply_adds": "the processor's own" if ceilings.loops else "torch's products: no C compiler",
    }
    if ceilings.buffer_bytes <= (device.last_level_cache_bytes or 0):
        conditions["warning"] = "the buffer fits into the last-level cache, so the bandwidth is the cache's"
    return conditions


def _conditions_of(device: DeviceRecord) -> dict[str, str]:
    import torch

    return {
        "torch": str(torch.__version__),
        "toolkit": device.details.get("toolkit", ""),
        "driver": device.driver or "unknown",
    }


def _state(name: str, state: Telemetry) -> dict[str, str]:
    """Say what the device said of itself ``before`` or ``after``, as far as it says anything."""
    told = {
        f"clock_{name}": None if state.clock_mhz is None else f"{state.clock_mhz:.0f} MHz",
        f"power_{name}": None if state.power_w is None else f"{state.power_w:.0f} W",
        f"throttle_reasons_{name}": ", ".join(state.throttle_reasons),
        "load_average": None if state.load_average is None else f"{state.load_average:.2f}",
        "other_processes": ", ".join(state.other_processes),
    }
    return {key: text for key, text in told.items() if text}


def _buffer_bytes(smallest: int, caches: int, last_level: int, memory: int | None) -> int:
    """Give a size beyond the caches, so that nothing is found there, and within an eighth of the memory."""
    wanted = max(caches * last_level, smallest)
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
    where: str, rate: Rate, sizes: tuple[int, ...], read: Timed, effort: Effort
) -> tuple[int, Callable[[], object], float]:
    """Give the operations of the product with the best rate, the product, and its shortest time."""
    found: tuple[int, Callable[[], object], float] | None = None
    end = perf_counter() + effort.matmul_s
    for size in sizes:
        flops = 2 * size**3
        if found and (_FEWEST_PASSES + 1) * flops * found[2] / found[0] > end - perf_counter():
            break
        run = _product(where, rate, size)
        seconds = _best(read, effort.matmul_s / len(sizes) / 2, run)
        if found is None or flops / seconds > found[0] / found[2]:
            found = flops, run, seconds
    if found is None:
        raise ValueError("no size of a matrix product is given")
    return found


def _product(where: str, rate: Rate, size: int) -> Callable[[], object]:
    """Make a square product of random numbers: zeros and ones cost less power, and no data reach their ceiling."""
    import torch

    left, right = (torch.rand(size, size, device=where, dtype=torch.float32) for _ in range(2))
    if rate is Rate.INT8:
        one, other = (each.mul(255).sub(128).to(torch.int8) for each in (left, right))
        return partial(torch.ops.aten._int_mm, one, other.t())  # its second factor lies column by column
    if rate is Rate.FLOAT8:
        one, other = (each.to(torch.float8_e4m3fn) for each in (left, right))
        scale = torch.ones((), device=where)
        told = {"scale_a": scale, "scale_b": scale, "out_dtype": torch.bfloat16, "use_fast_accum": True}
        return partial(torch.ops.aten._scaled_mm, one, other.t(), **told)
    dtype: torch.dtype = getattr(torch, "float32" if rate is Rate.TF32 else rate.value)
    one, other = left.to(dtype), right.to(dtype)
    return partial(torch.mm, one, other, out=torch.empty_like(one))


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


def _host_time(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


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
