"""Attributes recorded device activity to calls. Pure: numbers in, samples or a refusal out.

Work belongs to the call whose external id its launch carried, never to the call whose time it falls into.
A recording that does not account for all work on the device is refused.

It also says what one call does, and whether the sum of its kernels' times can stand for it: only if the call is
kernels one after the other, since a copy is not in such a sum, and of two kernels that overlap it counts the overlap
twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from kernelmark.errors import (
    EmptyIterationError,
    LossCounterUnprovedError,
    OffThreadLaunchError,
    OnlyCopiesError,
    TimingError,
    UnattributedActivityError,
)
from kernelmark.records import KernelShare
from kernelmark.timing.timer import Samples
from kernelmark.units import format_bytes, format_time

__all__ = [
    "PREPARE_ID",
    "Activity",
    "Recording",
    "WorkPerCall",
    "attribute",
    "busy_ns",
    "iteration_id",
    "kernels_alone",
]

PREPARE_ID = 1
"""External id of what reset and flush launch."""


def iteration_id(index: int) -> int:
    """Give the external id of call ``index``, from 0; it is never ``PREPARE_ID``."""
    return index + 2


@dataclass(frozen=True, slots=True)
class Activity:
    """One piece of work on the device; times in nanoseconds of the device's clock."""

    kind: Literal["kernel", "copy", "memset"]
    name: str
    """A kernel's name; for a copy its direction, such as ``DtoD``."""
    start_ns: int
    end_ns: int
    correlation: int
    stream: int = 0
    size_bytes: int = 0

    @property
    def device_copy(self) -> bool:
        """Whether this is a copy from the device to itself, or to another device."""
        return self.kind == "copy" and self.name in ("DtoD", "PtoP")


@dataclass(frozen=True, slots=True)
class Recording:
    """What one pass left: all work on the device, and how launches map to calls."""

    count: int
    """Calls made."""
    activities: tuple[Activity, ...]
    externals: Mapping[int, int]
    """Correlation id of a launch to the external id that its thread carried."""
    threads: Mapping[int, int] = field(default_factory=dict)
    """Correlation id of a launch to the thread that made it."""
    main_thread: int | None = None
    loss_counter_proved: bool = True
    retries: int = 0


def attribute(recording: Recording, *, count_copies: bool) -> Samples:
    """Give each call its own work.

    ``device_busy`` is the union of the call's kernels and memsets, and of its copies; a copy within the
    device is left out where ``count_copies`` is False, and shown as ``uncounted_copy``. ``latency`` is the
    span from the first start to the last end of what counts.

    Raises:
        EmptyIterationError: a call without work.
        OnlyCopiesError: a call that consists of copies which do not count.
        OffThreadLaunchError: work that another thread launched.
        UnattributedActivityError: work that belongs to no call, reset or flush.
        LossCounterUnprovedError: one of these, where records may have been lost unseen.
    """
    try:
        by_call = _split(recording)
        return _samples(recording, by_call, count_copies)
    except (EmptyIterationError, UnattributedActivityError) as error:
        if recording.loss_counter_proved:
            raise
        raise LossCounterUnprovedError(
            f"{error}; this instrument's count of lost records could not be shown to work in this process, so the"
            " records may be missing through no fault of the call: use --kernelmark-timer device_events, or a"
            " process in which no other profiler has run"
        ) from error


def busy_ns(intervals: Iterable[tuple[int, int]]) -> int:
    """Give the length of the union of intervals: overlap counts once."""
    total, reached = 0, None
    for start, end in sorted(intervals):
        if reached is None or start > reached:
            total += end - start
            reached = end
        elif end > reached:
            total += end - reached
            reached = end
    return total


def _split(recording: Recording) -> list[list[Activity]]:
    by_call: list[list[Activity]] = [[] for _ in range(recording.count)]
    strays: list[Activity] = []
    first = iteration_id(0)
    for activity in recording.activities:
        external = recording.externals.get(activity.correlation)
        if external == PREPARE_ID:
            continue
        if external is None or not first <= external < first + recording.count:
            strays.append(activity)
        else:
            by_call[external - first].append(activity)
    if strays:
        _refuse_strays(recording, strays)
    return by_call


def _refuse_strays(recording: Recording, strays: Sequence[Activity]) -> NoReturn:
    names = _listed(strays)
    others = {
        thread
        for activity in strays
        if (thread := recording.threads.get(activity.correlation)) is not None
        and thread != recording.main_thread
    }
    if others and recording.main_thread is not None:
        raise OffThreadLaunchError(
            f"{len(strays)} pieces of device work ({names}) were launched by another thread than the one that made"
            " the call, as Tensor.backward() does; this instrument follows one thread. Time the forward and the"
            " backward functions themselves (an autograd.Function's backward called directly, or"
            " torch.autograd.grad inside torch.autograd.set_multithreading_enabled(False)), or ask for"
            " device_events, which reads the whole interval"
        )
    raise UnattributedActivityError(
        f"{len(strays)} pieces of device work ({names}) belong to no timed call, reset or flush; something else in"
        " this process is using the device. Stop it, or join its stream before the call returns"
    )


def _samples(recording: Recording, by_call: list[list[Activity]], count_copies: bool) -> Samples:
    columns: dict[str, list[int]] = defaultdict(list)
    weights: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for index, activities in enumerate(by_call):
        counted = [a for a in activities if count_copies or not a.device_copy]
        if not counted:
            _refuse_empty(index, activities, recording.count)
        spans = [(a.start_ns, a.end_ns) for a in counted]
        if any(end < start for start, end in spans):
            raise TimingError(
                f"call {index + 1} has work that ends before it starts: the records are damaged"
            )
        columns["busy"].append(busy_ns(spans))
        columns["latency"].append(max(end for _, end in spans) - min(start for start, _ in spans))
        uncounted = [a for a in activities if a.device_copy and not count_copies]
        columns["copied"].append(busy_ns((a.start_ns, a.end_ns) for a in uncounted))
        for kind in ("kernel", "copy", "memset"):
            columns[kind].append(sum(a.kind == kind for a in activities))
        for a in counted:
            weight = weights[a.name, a.kind]
            weight[0] += 1
            weight[1] += a.end_ns - a.start_ns
    return Samples(
        latency_ns=tuple(columns["latency"]),
        device_busy_ns=tuple(columns["busy"]),
        n_kernels=tuple(columns["kernel"]),
        n_copies=tuple(columns["copy"]),
        n_memsets=tuple(columns["memset"]),
        uncounted_copy_ns=tuple(columns["copied"]),
        kernels=_shares(weights, recording.count),
        retries=recording.retries,
    )


def _refuse_empty(index: int, activities: Sequence[Activity], count: int) -> NoReturn:
    if activities:
        raise OnlyCopiesError(
            f"call {index + 1} of {count} consists of copies within the device ({_listed(activities)}), which this case"
            " does not count: set count_copies=True in the case's entry if the copy is the work"
        )
    raise EmptyIterationError(
        f"call {index + 1} of {count} did no work on the device: it launches nothing, or it launches later than it"
        " returns; a call that only works on the host is timed with --kernelmark-timer host"
    )


def _shares(weights: Mapping[tuple[str, str], list[int]], count: int) -> tuple[KernelShare, ...]:
    total = sum(time for _, time in weights.values())
    shares = [
        KernelShare(name=name, kind=kind, per_call=runs / count, share=time / total if total else 0.0)  # type: ignore[arg-type]
        for (name, kind), (runs, time) in weights.items()
    ]
    return tuple(sorted(shares, key=lambda share: (-share.share, share.name)))


def _listed(activities: Sequence[Activity], most: int = 3) -> str:
    names = list(
        dict.fromkeys(a.name if a.kind == "kernel" else f"{a.kind} {a.name}".strip() for a in activities)
    )
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(name[:80] for name in names[:most]) + more


# --- calls that are kernels alone ----------------------------------------------------------------------

MEMSET_SHARE = 0.05
"""How much of a call may be memsets, which a sum of kernel times leaves out.

cuBLAS clears a few bytes before some products; what clears a whole output is work and belongs in the reading.
"""

OVERLAP_SHARE = 0.01
"""How much of the sum kernels of one stream may overlap: a kernel may start while the one before it drains."""

_INSTEAD = "ask for kineto or cupti, which read all of it"


@dataclass(frozen=True, slots=True)
class WorkPerCall:
    """What each call must be seen to do."""

    kernels: int
    memsets: int = 0
    memset_ns: int = 0
    memset_bytes: int = 0


def kernels_alone(activities: Sequence[Activity], *, timer: str) -> WorkPerCall:
    """Say how many kernels a call launches, given all that the device did for it.

    Args:
        activities: Everything that ran on the device from the call until the device was idle again.
        timer: Who asks, for the message.

    Raises:
        EmptyIterationError: the call did nothing on the device.
        OnlyCopiesError: it copied or cleared memory and launched no kernel.
        UnattributedActivityError: it copied, or cleared more than a little, beside its kernels.
        TimingError: its kernels ran on several streams, or overlapped.
    """
    kernels = [a for a in activities if a.kind == "kernel"]
    copies = [a for a in activities if a.kind == "copy"]
    memsets = [a for a in activities if a.kind == "memset"]
    if not activities:
        raise EmptyIterationError(
            "the call did no work on the device: it launches nothing, or it launches later than it returns; a call"
            " that only works on the host is timed with the host timer"
        )
    if not kernels:
        raise OnlyCopiesError(
            f"the call consists of {_told(activities)}, and {timer} sees kernels alone: {_INSTEAD}"
        )
    if copies:
        raise UnattributedActivityError(
            f"beside {len(kernels)} kernels the call does {_told(copies)}, which {timer} would leave out: {_INSTEAD}"
        )
    total, union = _total_ns(kernels), busy_ns((a.start_ns, a.end_ns) for a in kernels)
    streams = {a.stream for a in kernels}
    if len(streams) > 1 or total - union > OVERLAP_SHARE * total:
        raise TimingError(
            f"the call's {len(kernels)} kernels ran on {len(streams)} stream(s) and took {format_time(total, 3)} added"
            f" up, {format_time(union, 3)} with what overlaps counted once; {timer} can only add up: {_INSTEAD}"
        )
    if _total_ns(memsets) > MEMSET_SHARE * total:
        raise UnattributedActivityError(
            f"beside {len(kernels)} kernels of {format_time(total, 3)} the call does {_told(memsets)} in"
            f" {format_time(_total_ns(memsets), 3)}, which {timer} would leave out: {_INSTEAD}"
        )
    return WorkPerCall(len(kernels), len(memsets), _total_ns(memsets), sum(a.size_bytes for a in memsets))


def _total_ns(activities: Sequence[Activity]) -> int:
    return sum(a.end_ns - a.start_ns for a in activities)


def _told(activities: Sequence[Activity]) -> str:
    parts = []
    for kind, word in (("copy", "copies"), ("memset", "memsets")):
        some = [a for a in activities if a.kind == kind]
        if some:
            parts.append(f"{len(some)} {word} ({format_bytes(sum(a.size_bytes for a in some))})")
    return " and ".join(parts)
