"""What each timer reads of nothing, of a spin of known length, and of copies that cannot be faster than memory.

A reading that is off by more than the stated tolerance is doubtful. A timer that this machine lacks gives no
reading and is no doubt: it cannot be used for a benchmark either.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from kernelmark.device import Device
from kernelmark.errors import EmptyIterationError, TimingError, UnavailableError
from kernelmark.records import Cache, Timing
from kernelmark.roofline import TOLERANCE
from kernelmark.timing import TIMERS, Budget, TimingOptions, bench_kernel, open_timer
from kernelmark.timing.profilers import in_bearable_order
from kernelmark.timing.timer import SYNCHRONOUS_KINDS, Timer
from kernelmark.timing.timers import TimerEntry
from kernelmark.units import NS_PER_S, NS_PER_US, format_bytes, format_percent, format_time

__all__ = ["FULL_BUDGET", "QUICK_BUDGET", "Plan", "Reading", "Spin", "read_instruments", "spin"]

FULL_BUDGET = Budget(warmup_ms=10, sample_ms=50, min_count=5, max_count=50, blocks=3, prepare_ms=300)
QUICK_BUDGET = Budget(warmup_ms=0, sample_ms=5, min_count=2, max_count=10, blocks=1, prepare_ms=50)

_SPIN_NS = 1_000_000
_CYCLES_PER_NS = 2  # of a GPU's clock, roughly; what it is at the time is read
_WATCHED = 20  # so much longer is the spin during which the clock is read
_SPIN_TOLERANCE = 0.05
"""A GPU's spin is counted in cycles of a clock that moves; a CPU's is read within 1 %, and stalls on a busy one."""

_NOTHING_AT_MOST_NS = 2_000
"""On a CPU, with warm caches; the host timer reads 60 ns of nothing on a quiet one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to read, and how many bytes a copy moves at which best rate."""

    budget: Budget
    copy_bytes: int
    best_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What one timer read of one known call.

    ``expected_ns`` is the length that is known: what the call takes, or for a copy the least that it can.
    """

    timer: str
    what: str
    read_ns: float | None = None
    expected_ns: float | None = None
    note: str = ""
    doubtful: bool = False
    key: str = field(default="", compare=False)
    """Its name among a profile's figures, with the unit; empty where nothing was read."""


def read_instruments(
    device: Device,
    plan: Plan,
    *,
    entries: Sequence[TimerEntry] = TIMERS,
    open_: Callable[[str, Device], Timer] = open_timer,
) -> tuple[Reading, ...]:
    """Read the known calls with every timer that serves ``device``."""
    serving = [entry for entry in in_bearable_order(entries) if entry.serves_kind(device.kind)]
    return tuple(reading for entry in serving for reading in _of_timer(device, plan, entry.name, open_))


def _of_timer(
    device: Device, plan: Plan, name: str, open_: Callable[[str, Device], Timer]
) -> Iterator[Reading]:
    try:
        timer = open_(name, device)
        yield _nothing(device, plan, timer)
        yield from _spin(device, plan, timer)
        for share in (2, 1):
            yield _copy(device, plan, timer, plan.copy_bytes // share)
    except UnavailableError as error:
        yield Reading(name, "not usable here", note=str(error))
    except TimingError as error:
        yield Reading(name, "no reading", note=str(error), doubtful=True)


def _nothing(device: Device, plan: Plan, timer: Timer) -> Reading:
    what = "nothing"
    try:
        found = _read(device, plan, timer, _do_nothing, cache=Cache.WARM)
    except EmptyIterationError:
        return Reading(timer.name, what, note="refuses a call without work, as it should")
    read = found.latency.median_ns
    doubt = device.kind in SYNCHRONOUS_KINDS and read > _NOTHING_AT_MOST_NS
    note = f"more than {format_time(_NOTHING_AT_MOST_NS)}: the host is slow or busy" if doubt else ""
    return Reading(timer.name, what, read, 0.0, note, doubt, f"{timer.name}_nothing_ns")


def _spin(device: Device, plan: Plan, timer: Timer) -> Iterator[Reading]:
    known = spin(device, _SPIN_NS)
    if known is None:
        return
    read = _read(device, plan, timer, known.run, cache=Cache.WARM).device_busy.median_ns
    off = read / known.length_ns - 1
    doubt = abs(off) > _SPIN_TOLERANCE
    note = f"{format_percent(off)} off; by {known.by}"
    yield Reading(timer.name, "a spin", read, known.length_ns, note, doubt, f"{timer.name}_spin_ns")


def _copy(device: Device, plan: Plan, timer: Timer, size: int) -> Reading:
    """Copy with the sign changed, which is a kernel everywhere: some timers read no plain copy."""
    import torch

    to, source = torch.ones(size // 8 * 2, dtype=torch.float32, device=device.torch_name).chunk(2)

    def copy() -> None:
        torch.neg(source, out=to)

    read = _read(device, plan, timer, copy, cache=Cache.COLD).device_busy.median_ns
    least = size / plan.best_bytes_per_s * NS_PER_S
    # What is written may still be in the cache at the end, so only a copy well beyond it has a least time.
    beyond = size >= 2 * (device.describe().last_level_cache_bytes or 0)
    doubt = beyond and read * TOLERANCE < least
    note = (
        "faster than the best rate of the memory"
        if doubt
        else f"{format_percent(least / read)} of the best rate"
    )
    what = f"a copy that moves {format_bytes(size)}"
    return Reading(timer.name, what, read, least, note, doubt, f"{timer.name}_copy_{size}_bytes_ns")


def _read(device: Device, plan: Plan, timer: Timer, run: Callable[[], object], *, cache: Cache) -> Timing:
    options = TimingOptions(budget=plan.budget, cache=cache)
    return bench_kernel(run, device=device, timer=timer, options=options)


def _do_nothing() -> None:
    """Do nothing."""


# --- calls whose length is known without the instrument that reads them ---------------------------


@dataclass(frozen=True, slots=True)
class Spin:
    """A call, how long it takes, and what says so."""

    run: Callable[[], object]
    length_ns: float
    by: str


def spin(device: Device, wanted_ns: int) -> Spin | None:
    """Give a spin of about ``wanted_ns`` on ``device``; ``None`` where none of known length can be had."""
    if device.kind in SYNCHRONOUS_KINDS:
        # nobody slews it, and the host timer does not read it
        raw = getattr(time, "CLOCK_MONOTONIC_RAW", None)
        clock = time.monotonic_ns if raw is None else partial(time.clock_gettime_ns, raw)
        by = "the monotonic clock" if raw is None else "CLOCK_MONOTONIC_RAW"
        return Spin(partial(_wait, clock, wanted_ns), wanted_ns, by)
    return _on_cuda(device, wanted_ns) if device.kind == "cuda" else None


def _wait(clock: Callable[[], int], length_ns: int) -> None:
    end = clock() + length_ns
    while clock() < end:
        pass


def _on_cuda(device: Device, wanted_ns: int) -> Spin | None:
    """Spin for a number of cycles: their length follows from the clock, which NVML reads meanwhile.

    torch has no public call for it; its own tests use this one. 2e7 cycles took 10.1 ms on an H200 at
    1980 MHz.
    """
    import torch

    sleep: Callable[[int], object] | None = getattr(torch.cuda, "_sleep", None)
    if sleep is None:
        return None
    cycles = _CYCLES_PER_NS * wanted_ns
    sleep(cycles)  # wakes the device
    sleep(_WATCHED * cycles)
    time.sleep(_WATCHED * wanted_ns / NS_PER_S / 2)  # until its clock has risen
    clock_mhz = device.telemetry().clock_mhz
    device.synchronize()
    if not clock_mhz:
        return None
    return Spin(
        partial(sleep, cycles), cycles / clock_mhz * NS_PER_US, f"{cycles} cycles at {clock_mhz:.0f} MHz"
    )
