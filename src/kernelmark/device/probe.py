"""Shows whether cold is cold and warm is warm: times a read of known size after the flush, and again at once.

A reading of the instrument, not of a user's call. It owns its own two loops, since what it times is the flush
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter_ns
from typing import Any, NamedTuple

from kernelmark.device.base import Device, Flusher
from kernelmark.errors import UnavailableError
from kernelmark.records import Cache, DeviceRecord, ProbeReading
from kernelmark.units import NS_PER_MS, format_bytes, format_time

__all__ = ["COLD_ENOUGH", "flush_verdict", "measure_probe", "probe_bytes", "probe_verdict"]

COLD_ENOUGH = 1.3
"""A probe that reads less than this many times as long as warm was not evicted.

Without a flush the ratio is 0.99 to 1.03 on an H200 and on a CPU, and on the H200 after half its L2 as well.
After the full flush it is 2.33 on the H200, and 33 on a CPU with 2 MiB of L2 a core and 480 MiB of L3.
"""

_ROUNDS = {Cache.COLD: 9, Cache.WARM: 2}
"""A run with warm caches needs no other flush, and one costs 20 to 60 ms on a CPU that reads 480 MiB; there the
two reads are 13 to 39 times apart."""

_GPU_BYTES = 4 << 20
_GPU_ROWS = 512
_SMALLEST = 64 << 10  # below this a call's own cost on a CPU, about 1 µs, hides the memory behind it
# torch sums up to here on one thread. With 16 threads 256 KiB take 17 µs warm, most of it for waking them.
_LARGEST_ON_CPU = 128 << 10


class _Round(NamedTuple):
    """Nanoseconds of the flush, of the read after it, and of the same read once the data are there."""

    flush: float
    cold: float
    warm: float


def measure_probe(
    device: Device,
    *,
    cache: Cache = Cache.COLD,
    flush: Flusher | None = None,
    clock: Callable[[], int] | None = None,
    rounds: int | None = None,
) -> ProbeReading:
    """Time the probe on ``device``; medians over ``rounds``.

    Args:
        device: What is flushed.
        cache: What the run's calls are to find; it decides how often, where ``rounds`` does not.
        flush: What evicts before each of the run's calls; the device's own flusher without it.
        clock: A host clock in nanoseconds that times what is done when a call returns. Without one, an
            accelerator is read with its own events and everything else with the performance counter.
        rounds: How often.

    Raises:
        UnavailableError: the device has no events that keep time, or no memory for the flush.
    """
    rounds = _ROUNDS[cache] if rounds is None else rounds
    flush = flush or device.flusher()
    size = probe_bytes(device.describe())
    if clock is None and device.kind not in ("cpu", "fake"):
        readings = _by_events(device, _serial_read(device.torch_name, size), flush, rounds)
    else:
        read = _read(device.torch_name, size)
        readings = _by_host(read, flush, clock or perf_counter_ns, rounds)
    return ProbeReading(
        size_bytes=size,
        warm_ns=median(reading.warm for reading in readings),
        cold_ns=median(reading.cold for reading in readings),
        flush_bytes=flush.size_bytes,
        flush_ns=median(reading.flush for reading in readings),
    )


def flush_verdict(reading: ProbeReading) -> str:
    """Say in one sentence why the flush cannot be trusted; nothing where cold is cold."""
    if reading.ratio >= COLD_ENOUGH:
        return ""
    return (
        f"the flush evicts nothing: reading {format_bytes(reading.size_bytes)} takes"
        f" {format_time(reading.cold_ns)} after a flush of {format_bytes(reading.flush_bytes)} and"
        f" {format_time(reading.warm_ns)} without one, {reading.ratio:.2f} times as long where at least"
        f" {COLD_ENOUGH} is expected; cold times of this run may be warm ones"
    )


def probe_verdict(reading: ProbeReading, cache: Cache) -> str:
    """Say in one sentence why nothing shows that the caches are as ``cache`` says; nothing where it is shown."""
    if cache is Cache.COLD:
        return flush_verdict(reading)
    if reading.ratio >= COLD_ENOUGH:
        return ""
    return (
        f"nothing shows that warm is warm: reading {format_bytes(reading.size_bytes)} a second time takes"
        f" {format_time(reading.warm_ns)}, and {format_time(reading.cold_ns)} after a flush of"
        f" {format_bytes(reading.flush_bytes)}, {reading.ratio:.2f} times as long where at least {COLD_ENOUGH} is"
        " expected; either the caches keep nothing, or the flush evicts nothing"
    )


def probe_bytes(device: DeviceRecord) -> int:
    """Say how much to read: well inside the cache nearest to where the work is done.

    Up to an eighth of the largest cache of a CPU's core, so that a warm read never leaves it. 4 MiB on a GPU, or
    a quarter of its L2.
    """
    sizes = list(device.cache_bytes.values())
    if device.kind in ("cpu", "fake"):
        private = sizes[-2] if len(sizes) > 1 else (device.last_level_cache_bytes or 0) // 8
        return min(_LARGEST_ON_CPU, max(_SMALLEST, private // 8))
    return min(_GPU_BYTES, max(_SMALLEST, (device.last_level_cache_bytes or _GPU_BYTES * 4) // 4))


def _by_host(
    read: Callable[[], object], flush: Callable[[], None], clock: Callable[[], int], rounds: int
) -> list[_Round]:
    readings = []
    for _ in range(rounds + 1):
        start = clock()
        flush()
        flushed = clock()
        read()
        cold = clock()
        read()
        between = clock()
        read()
        warm = clock()
        readings.append(_Round(flushed - start, cold - flushed, warm - between))
    return readings[1:]  # the first one loads code and starts threads


def _by_events(
    device: Device, read: Callable[[], object], flush: Callable[[], None], rounds: int
) -> list[_Round]:
    """Read all of a round by events that are queued behind the flush, so that no launch is waited for."""
    import torch

    where = torch.device(device.torch_name)
    try:
        stream = torch.accelerator.current_stream(where)
        events = [torch.Event(device=where, enable_timing=True) for _ in range(5)]
        readings = [
            _one_by_events(events, stream, read, flush, device.synchronize) for _ in range(rounds + 1)
        ]
    except NotImplementedError as error:
        raise UnavailableError(
            f"torch has no events that keep time on {device.torch_name} ({error}), so nothing shows whether"
            " its caches are cold; time with a warm cache"
        ) from error
    return readings[1:]  # the first one loads kernels


def _one_by_events(
    events: list[Any],
    stream: Any,
    read: Callable[[], object],
    flush: Callable[[], None],
    synchronize: Callable[[], None],
) -> _Round:
    start, flushed, cold, between, warm = events
    synchronize()
    start.record(stream)
    flush()
    flushed.record(stream)
    read()
    cold.record(stream)
    read()
    between.record(stream)
    read()
    warm.record(stream)
    synchronize()
    return _Round(
        start.elapsed_time(flushed) * NS_PER_MS,
        flushed.elapsed_time(cold) * NS_PER_MS,
        between.elapsed_time(warm) * NS_PER_MS,
    )


def _read(torch_name: str, size: int) -> Callable[[], object]:
    """Give a call that reads ``size`` bytes and writes one number."""
    import torch

    values = torch.ones(size // 8, dtype=torch.int64, device=torch_name)
    total = torch.empty((), dtype=torch.int64, device=torch_name)
    return lambda: torch.sum(values, 0, out=total)


def _serial_read(torch_name: str, size: int) -> Callable[[], object]:
    """Give a call in which each thread waits for one load after another, so that latency shows.

    A plain sum of 4 MiB takes 8.3 µs warm and 9.5 µs cold on an H200, since thousands of loads in flight hide
    what one costs: a ratio of 1.16, where a running sum down the columns gives 84 and 195 µs, 2.33.
    """
    import torch

    values = torch.ones((_GPU_ROWS, size // (4 * _GPU_ROWS)), dtype=torch.float32, device=torch_name)
    sums = torch.empty_like(values)
    return lambda: torch.cumsum(values, 0, out=sums)
