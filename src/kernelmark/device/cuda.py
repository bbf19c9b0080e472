"""A CUDA device (or an AMD one, which torch gives the same name): its L2, its clocks, its neighbours."""

from __future__ import annotations

import gc
from collections.abc import Collection

from kernelmark.device.eviction import ReadFlusher, gpu_eviction_bytes
from kernelmark.device.nvml import NvmlReader
from kernelmark.device.persisting_l2 import PersistingL2
from kernelmark.errors import UnavailableError
from kernelmark.records import DeviceRecord, Telemetry
from kernelmark.units import format_bytes

__all__ = ["CudaDevice"]


class CudaDevice:
    """One device of ``torch.cuda``.

    Args:
        index: torch's number of it, which counts visible devices only.

    Raises:
        UnavailableError: torch finds no such device.
    """

    kind = "cuda"
    default_timer = "cupti"

    def __init__(self, index: int = 0) -> None:
        import torch

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if not 0 <= index < count:
            raise UnavailableError(_absent(index, count))
        self.index = index
        self.torch_name = f"cuda:{index}"
        self._torch = torch
        self._hip = torch.version.hip is not None
        if self._hip:  # an AMD device answers to the same name, and has no CUPTI
            self.default_timer = "device_events"
        self._properties = torch.cuda.get_device_properties(index)
        self._persisting = None if self._hip else PersistingL2(index)
        self._nvml = None if self._hip else NvmlReader(*_addresses(self._properties))
        self._flusher: ReadFlusher | None = None

    def describe(self) -> DeviceRecord:
        """Give name, capability, memory, L2, driver, and what could not be had here."""
        found, l2 = self._properties, self._properties.L2_cache_size
        return DeviceRecord(
            kind=self.kind,
            name=found.name,
            index=self.index,
            cores=found.multi_processor_count,
            memory_bytes=found.total_memory,
            cache_bytes={"L2": l2} if l2 else {},
            last_level_cache_bytes=l2 or None,
            driver=self._nvml.driver() if self._nvml else None,
            capability=found.gcnArchName if self._hip else f"{found.major}.{found.minor}",
            details=self._details(),
        )

    def synchronize(self) -> None:
        """Wait for all streams of this device; raises torch's error if something failed on it."""
        self._torch.cuda.synchronize(self.index)

    def settle(self, familiar: Collection[str] = ()) -> None:
        """Do nothing: what threads of the host do is not in the device's time."""

    def working(self) -> frozenset[str]:
        """Name none, for the same reason."""
        return frozenset()

    def flusher(self) -> ReadFlusher:
        """Give the flusher, which queues one reading kernel on the current stream."""
        if self._flusher is None:
            self._flusher = ReadFlusher(self.torch_name, self._eviction_bytes(), before=self._persisting)
        return self._flusher

    def telemetry(self) -> Telemetry:
        """Read clocks, power, temperature, throttling and other processes, as far as NVML is there."""
        return self._nvml.read() if self._nvml else Telemetry()

    def release_memory(self) -> None:
        """Give what torch's allocator holds but does not use back to the device."""
        gc.collect()
        self._torch.cuda.empty_cache()

    def _eviction_bytes(self) -> int:
        return gpu_eviction_bytes(self._properties.L2_cache_size, hip=self._hip)

    def _details(self) -> dict[str, str]:
        details = {
            "toolkit": f"ROCm {self._torch.version.hip}" if self._hip else f"CUDA {self._torch.version.cuda}",
            "eviction": f"reads {format_bytes(self._eviction_bytes())}",
        }
        if self._hip:
            details["telemetry"] = "none: NVML is for NVIDIA devices"
        if self._persisting is not None:
            reason = self._persisting.reason
            details["persisting_l2"] = f"not reset: {reason}" if reason else "reset each round"
        if self._nvml is not None and self._nvml.reason:
            details["telemetry"] = f"none: {self._nvml.reason}"
        return details


def _absent(index: int, count: int) -> str:
    import torch

    if count:
        return f"there is no cuda:{index}; torch sees {count} CUDA device(s), cuda:0 to cuda:{count - 1}"
    if torch.version.cuda is None and torch.version.hip is None:
        why = f"torch {torch.__version__} is built without CUDA; install a build with it"
    else:
        why = "torch finds no device; check the driver and CUDA_VISIBLE_DEVICES"
    return f"there is no cuda:{index}: {why}, or use the device 'cpu'"


def _addresses(properties: object) -> tuple[str | None, str | None]:
    """Give the UUID and the PCI address as NVML writes them; torch before 2.8 lacks the second."""
    uuid = getattr(properties, "uuid", None)
    parts = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    domain, bus, device = parts
    known = domain is not None and bus is not None and device is not None
    return f"GPU-{uuid}" if uuid else None, f"{domain:08X}:{bus:02X}:{device:02X}.0" if known else None
