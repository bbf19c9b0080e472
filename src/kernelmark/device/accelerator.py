"""Any other accelerator that torch knows (``xpu``, ``mps``, ...), through what all of them share."""

from __future__ import annotations

import gc
from collections.abc import Collection
from typing import Any

from kernelmark.device.eviction import ReadFlusher, gpu_eviction_bytes
from kernelmark.errors import UnavailableError
from kernelmark.records import DeviceRecord, Telemetry
from kernelmark.units import format_bytes

__all__ = ["AcceleratorDevice"]

# The names under which torch's device properties hold the size of the last cache, where they do.
_L2_NAMES = ("L2_cache_size", "last_level_cache_size")
_DETAILS = ("driver_version", "platform_name", "type", "gpu_eu_count", "max_compute_units")


class AcceleratorDevice:
    """One device of ``torch.accelerator``.

    Args:
        kind: Its type in torch.
        index: torch's number of it.

    Raises:
        UnavailableError: torch finds no such device.
    """

    default_timer = "device_events"

    def __init__(self, kind: str, index: int = 0) -> None:
        import torch

        self._torch = torch
        current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        if current is None or current.type != kind or not 0 <= index < torch.accelerator.device_count():
            here = f"{current.type}, {torch.accelerator.device_count()} of them" if current else "none"
            raise UnavailableError(f"there is no {kind}:{index}; torch's accelerator here: {here}")
        self.kind = kind
        self.index = index
        self.torch_name = f"{kind}:{index}"
        self._module: Any = torch.get_device_module(kind)
        ask = getattr(self._module, "get_device_properties", None)
        self._properties: Any = ask(index) if ask is not None else None
        self._flusher: ReadFlusher | None = None

    def describe(self) -> DeviceRecord:
        """Give what the device's properties hold; the rest stays empty."""
        l2 = self._l2()
        size = format_bytes(gpu_eviction_bytes(l2))
        details = {name: str(value) for name in _DETAILS if (value := self._property(name)) is not None}
        details["eviction"] = f"reads {size}" + ("" if l2 else "; torch tells no cache size of this device")
        details["telemetry"] = f"none: nothing reads clocks and power of a {self.kind} device"
        return DeviceRecord(
            kind=self.kind,
            name=str(self._property("name") or self.kind),
            index=self.index,
            memory_bytes=self._property("total_memory"),
            cache_bytes={"L2": l2} if l2 else {},
            last_level_cache_bytes=l2 or None,
            driver=str(self._property("driver_version") or "") or None,
            details=details,
        )

    def synchronize(self) -> None:
        """Wait for everything queued on this device."""
        self._torch.accelerator.synchronize(self.index)

    def settle(self, familiar: Collection[str] = ()) -> None:
        """Do nothing: what threads of the host do is not in the device's time."""

    def working(self) -> frozenset[str]:
        """Name none, for the same reason."""
        return frozenset()

    def flusher(self) -> ReadFlusher:
        """Give the flusher, which queues one reading kernel on the current stream."""
        if self._flusher is None:
            self._flusher = ReadFlusher(self.torch_name, gpu_eviction_bytes(self._l2()))
        return self._flusher

    def telemetry(self) -> Telemetry:
        """Give an empty reading."""
        return Telemetry()

    def release_memory(self) -> None:
        """Give what torch's allocator holds but does not use back to the device, where it can."""
        gc.collect()
        empty_cache = getattr(self._module, "empty_cache", None)
        if empty_cache is not None:
            empty_cache()

    def _property(self, name: str) -> Any:
        return getattr(self._properties, name, None)

    def _l2(self) -> int:
        return next((size for name in _L2_NAMES if (size := self._property(name))), 0)
