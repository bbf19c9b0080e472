"""All activity of one call, read through the copy of CUPTI that Proton itself uses.

Proton keeps kernels only. Its copy of CUPTI also knows copies, memsets, streams and times, and between two
sessions of Proton it is free: asking it spoils nothing, while any other copy of CUPTI in the process would
keep Proton from starting again. It is asked and let go exactly as Proton does it.

The records are read at the offsets that their structs share from CUDA 11 to 13; a call with known work shows
whether that holds before anything rests on it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from kernelmark.errors import InstrumentConflictError, RecordsLostError, UnavailableError
from kernelmark.timing.timers.activity import Activity

__all__ = ["ProtonCupti"]

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
