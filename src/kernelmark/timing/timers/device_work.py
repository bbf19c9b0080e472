"""What one call does on the device, and whether the sum of its kernels' times can stand for it. Pure.

A sum of kernel times is the call's time only if the call is kernels one after the other: a copy is not in it,
and of two kernels that overlap it counts the overlap twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelmark.errors import EmptyIterationError, OnlyCopiesError, TimingError, UnattributedActivityError
from kernelmark.timing.timers.activity import Activity, busy_ns
from kernelmark.units import format_bytes, format_time

__all__ = ["WorkPerCall", "kernels_alone"]

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
            f"the call consists of {_listed(activities)}, and {timer} sees kernels alone: {_INSTEAD}"
        )
    if copies:
        raise UnattributedActivityError(
            f"beside {len(kernels)} kernels the call does {_listed(copies)}, which {timer} would leave out: {_INSTEAD}"
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
            f"beside {len(kernels)} kernels of {format_time(total, 3)} the call does {_listed(memsets)} in"
            f" {format_time(_total_ns(memsets), 3)}, which {timer} would leave out: {_INSTEAD}"
        )
    return WorkPerCall(len(kernels), len(memsets), _total_ns(memsets), sum(a.size_bytes for a in memsets))


def _total_ns(activities: Sequence[Activity]) -> int:
    return sum(a.end_ns - a.start_ns for a in activities)


def _listed(activities: Sequence[Activity]) -> str:
    parts = []
    for kind, word in (("copy", "copies"), ("memset", "memsets")):
        some = [a for a in activities if a.kind == kind]
        if some:
            parts.append(f"{len(some)} {word} ({format_bytes(sum(a.size_bytes for a in some))})")
    return " and ".join(parts)
