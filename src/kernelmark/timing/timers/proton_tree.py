"""Attributes the tree that Proton writes to calls. Pure: a tree in, samples or a refusal out.

Proton adds up what its kernels took, by scope and by name; it keeps no start, no end and no stream, and it
records no copy and no memset. So a tree proves nothing by itself: the ``WorkPerCall`` that it is held against
comes from elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from kernelmark.errors import OffThreadLaunchError, TimingError, UnattributedActivityError
from kernelmark.records import KernelShare
from kernelmark.timing.timer import Samples
from kernelmark.timing.timers.device_work import WorkPerCall

__all__ = ["GRAPH_SCOPE", "PREPARE_SCOPE", "ScopedPass", "attribute_scopes", "call_scope"]

_CALL = "kernelmark.call."
PREPARE_SCOPE = "kernelmark.prepare"
"""What reset and flush launch."""
GRAPH_SCOPE = "kernelmark.graph"
"""What capturing and replaying a graph launches by itself, such as the state of the random numbers."""

_OFF_THREAD = (
    "work was launched by another thread than the one that made the call, as Tensor.backward() does, and Proton's"
    " scopes follow one thread. Time the forward and the backward functions themselves (an autograd.Function's"
    " backward called directly, or torch.autograd.grad inside torch.autograd.set_multithreading_enabled(False)), or"
    " ask for device_events, which reads the whole interval"
)


def call_scope(index: int) -> str:
    """Give the name of the scope of call ``index``, from 0."""
    return f"{_CALL}{index:06d}"


@dataclass(frozen=True, slots=True)
class ScopedPass:
    """One pass: what Proton wrote, and what each call is known to do."""

    database: Sequence[Any]
    """The content of a ``.hatchet`` file."""
    count: int
    """Calls with a scope."""
    work: WorkPerCall
    replays: int = 1
    """How often each of them ran."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    """All kernels of one name in one scope."""

    scope: str | None
    name: str
    count: int
    time_ns: int | float


def attribute_scopes(found: ScopedPass) -> Samples:
    """Give each call the sum of its kernels' times, the mean over the replays.

    Raises:
        OffThreadLaunchError: kernels that belong to calls are outside all scopes.
        UnattributedActivityError: kernels that belong to no call, reset or flush.
        TimingError: a scope is missing, holds no time, or not the kernels that each call launches.
    """
    by_scope: dict[str | None, list[_Leaf]] = defaultdict(list)
    for node in found.database:
        for leaf in _leaves(node, None):
            by_scope[leaf.scope].append(leaf)
    wanted = found.work.kernels * found.replays
    counts = [sum(leaf.count for leaf in by_scope[call_scope(i)]) for i in range(found.count)]
    if by_scope[None]:
        _refuse_strays(by_scope[None], wanted * found.count - sum(counts))
    if set(counts) != {wanted}:
        _refuse_counts(counts, wanted, found)
    leaves = [by_scope[call_scope(i)] for i in range(found.count)]
    times = [sum(leaf.time_ns for leaf in each) for each in leaves]
    if not all(time > 0 for time in times):
        raise TimingError(
            f"Proton gave call {times.index(min(times)) + 1} of {found.count} {min(times)} ns for {wanted} kernels,"
            " which is no time; none is given"
        )
    per_call = tuple(time / found.replays for time in times)
    return Samples(
        latency_ns=per_call,
        device_busy_ns=per_call,
        n_kernels=(found.work.kernels,) * found.count,
        n_copies=(0,) * found.count,
        n_memsets=(found.work.memsets,) * found.count,
        kernels=_shares(leaves, found.count * found.replays),
    )


def _leaves(node: Any, scope: str | None) -> Iterator[_Leaf]:
    """Give the nodes that hold kernels, each with the scope of ours that it lies in."""
    if not isinstance(node, Mapping) or "frame" not in node:
        return  # the last entry describes the devices
    name = node["frame"].get("name", "")
    if name.startswith(_CALL) or name in (PREPARE_SCOPE, GRAPH_SCOPE):
        scope = name
    children = node.get("children") or ()
    for child in children:
        yield from _leaves(child, scope)
    time = (node.get("metrics") or {}).get("time (ns)", 0)
    if not children and time:
        yield _Leaf(scope, name, int(node["metrics"].get("count", 0)), time)


def _refuse_strays(strays: Sequence[_Leaf], missing: int) -> NoReturn:
    number = sum(leaf.count for leaf in strays)
    names = ", ".join(dict.fromkeys(leaf.name[:80] for leaf in strays[:3]))
    if missing > 0:
        raise OffThreadLaunchError(
            f"{missing} kernels of the calls are in no scope, and {number} kernels ({names}) are outside all scopes:"
            f" {_OFF_THREAD}"
        )
    raise UnattributedActivityError(
        f"{number} kernels ({names}) belong to no timed call, reset or flush; something else in this process is using"
        " the device. Stop it, or join its stream before the call returns"
    )


def _refuse_counts(counts: Sequence[int], wanted: int, found: ScopedPass) -> NoReturn:
    index = next(i for i, seen in enumerate(counts) if seen != wanted)
    what = (
        f"Proton shows {counts[index]} kernels in the scope of call {index + 1} of {found.count}"
        f"{f' in {found.replays} replays' if found.replays > 1 else ''}, where {wanted} were expected, since the device"
        f" ran {found.work.kernels} when the same call was looked at by itself"
    )
    if sum(counts) == wanted * found.count:  # a thread that Proton meets for the first time keeps that scope
        raise OffThreadLaunchError(f"{what}; the scopes of other calls make up for it: {_OFF_THREAD}")
    raise TimingError(
        f"{what}: either Proton did not see all of it, or the call does not launch the same kernels each time. Ask for"
        " cupti, which records each call by itself"
    )


def _shares(leaves: Sequence[Sequence[_Leaf]], runs: int) -> tuple[KernelShare, ...]:
    weights: dict[str, list[float]] = defaultdict(lambda: [0, 0])
    for each in leaves:
        for leaf in each:
            weights[leaf.name][0] += leaf.count
            weights[leaf.name][1] += leaf.time_ns
    total = sum(time for _, time in weights.values())
    shares = [
        KernelShare(name=name, per_call=count / runs, share=time / total)
        for name, (count, time) in weights.items()
    ]
    return tuple(sorted(shares, key=lambda share: (-share.share, share.name)))
