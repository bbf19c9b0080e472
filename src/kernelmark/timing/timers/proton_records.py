"""What Proton records: the tree that it writes, and all activity of one call through its own copy of CUPTI.

Proton adds up what its kernels took, by scope and by name; it keeps no start, no end and no stream, and it records no
copy and no memset. So a tree proves nothing by itself. Attributing it to calls is pure, a tree in, samples or a refusal
out, and it is held against what one call was seen to do by itself.

That is seen through the copy of CUPTI that Proton itself uses. It knows copies, memsets, streams and times, and between
two sessions of Proton it is free: asking it spoils nothing, while any other copy of CUPTI in the process would keep
Proton from starting again. It is asked and let go exactly as Proton does it. The records are read at the offsets that
their structs share from CUDA 11 to 13; a call with known work shows whether that holds before anything rests on it.
"""

from __future__ import annotations

import ctypes
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from kernelmark.errors import (
    InstrumentConflictError,
    OffThreadLaunchError,
    RecordsLostError,
    TimingError,
    UnattributedActivityError,
    UnavailableError,
)
from kernelmark.records import KernelShare
from kernelmark.timing.timer import Samples
from kernelmark.timing.timers.activity import Activity, WorkPerCall

__all__ = ["GRAPH_SCOPE", "PREPARE_SCOPE", "ProtonCupti", "ScopedPass", "attribute_scopes", "call_scope"]

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


# --- one call, through Proton's CUPTI -----------------------------------------------------------------

_BUFFER_BYTES = 1 << 20


class _Layout(NamedTuple):
    """Where a record says what; ``kind`` is the first 32 bits of all of them."""

    kind: Literal["kernel", "copy", "memset"]
    stream: int
    correlation: int
    size: int | None


_START, _END = 16, 24
_LAYOUTS = {
    10: _Layout(
        "kernel", 48, 92, None
    ),  # CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUpti_ActivityKernel5 and later
    1: _Layout("copy", 40, 44, 8),  # MEMCPY
    22: _Layout("copy", 40, 60, 8),  # MEMCPY2, between devices
    2: _Layout("memset", 40, 44, 8),  # MEMSET
}

_Request = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_Complete = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


class ProtonCupti:
    """Collects activity through ``library``; there may be no open Proton session meanwhile."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._buffers: dict[int, Any] = {}
        self._found: list[Activity] = []
        self._lost = 0
        # CUPTI keeps the pointers: these live as long as this does, and no collection outlives it
        self._request, self._complete = _Request(self._requested), _Complete(self._completed)

    @classmethod
    def find(cls) -> ProtonCupti:
        """Take the library that Proton has loaded; a session must have been open before.

        Raises:
            UnavailableError: there is none where Triton keeps its own.
        """
        return cls(ctypes.CDLL(str(_loaded_library())))

    def collect(self, run: Callable[[], object], synchronize: Callable[[], object]) -> list[Activity]:
        """Give all that the device does for ``run``, from an idle device until it is idle again.

        Raises:
            InstrumentConflictError: CUPTI refuses.
            RecordsLostError: it dropped records.
        """
        synchronize()
        with self._collecting():
            try:
                run()
            finally:
                synchronize()
        lost, self._buffers, found = self._lost, {}, self._found
        if lost:
            raise RecordsLostError(
                f"CUPTI lost {lost} records of a single call; ask for device_events, which records nothing"
            )
        return found

    @contextmanager
    def _collecting(self) -> Iterator[None]:
        self._found, self._lost = [], 0
        enabled: list[int] = []
        self._do("cuptiActivityRegisterCallbacks", self._request, self._complete)
        try:
            for kind in _LAYOUTS:
                self._do("cuptiActivityEnable", kind)
                enabled.append(kind)
            yield
        finally:
            self._do("cuptiActivityFlushAll", 1)
            self._lost = self._dropped()
            for kind in enabled:
                self._do("cuptiActivityDisable", kind)
            self._do("cuptiFinalize")

    def _dropped(self) -> int:
        count = ctypes.c_size_t(0)
        self._do("cuptiActivityGetNumDroppedRecords", None, 0, ctypes.byref(count))
        return count.value

    def _do(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise InstrumentConflictError(
                f"the CUPTI that Proton uses refused {name} (error {status}), so what the call does besides kernels"
                " cannot be seen, and Proton's times prove nothing: ask for kineto, cupti or device_events"
            )

    def _requested(self, buffer: Any, size: Any, most: Any) -> None:
        memory = ctypes.create_string_buffer(_BUFFER_BYTES + 8)
        address = -(-ctypes.addressof(memory) // 8) * 8
        self._buffers[address] = memory
        buffer[0], size[0], most[0] = address, _BUFFER_BYTES, 0

    def _completed(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        record = ctypes.c_void_p()
        pointer = ctypes.c_void_p(buffer)
        while valid and not self._library.cuptiActivityGetNextRecord(
            pointer, ctypes.c_size_t(valid), ctypes.byref(record)
        ):
            if record.value:
                self._read(record.value)
        self._buffers.pop(buffer, None)

    def _read(self, address: int) -> None:
        layout = _LAYOUTS.get(ctypes.c_uint32.from_address(address).value)
        if layout is None:
            return
        self._found.append(
            Activity(
                layout.kind,
                layout.kind,
                ctypes.c_uint64.from_address(address + _START).value,
                ctypes.c_uint64.from_address(address + _END).value,
                ctypes.c_uint32.from_address(address + layout.correlation).value,
                ctypes.c_uint32.from_address(address + layout.stream).value,
                0 if layout.size is None else ctypes.c_uint64.from_address(address + layout.size).value,
            )
        )


def _loaded_library() -> Path:
    """Find the file among what this process has mapped: torch may have loaded another copy."""
    folder = Path(os.environ.get("TRITON_CUPTI_LIB_PATH") or _bundled_folder())
    wanted = folder.resolve()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = dict.fromkeys(line.split(maxsplit=5)[5].strip() for line in maps if "libcupti.so" in line)
    for path in map(Path, paths):
        if path.resolve().parent == wanted:
            return path
    raise UnavailableError(
        f"Proton has loaded no libcupti from {folder} (loaded: {', '.join(paths) or 'none'}), so what calls do besides"
        " kernels cannot be seen, and Proton's times prove nothing: ask for kineto, cupti or device_events"
    )


def _bundled_folder() -> str:
    from triton import knobs

    return str(knobs.proton.cupti_lib_dir)
