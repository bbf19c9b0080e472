"""Devices: what a call runs on, how its caches are made cold, and how it is described.

Nothing here imports torch until a device is opened, so that the types can be named anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmark.device.base import CacheSizes, Device, Flusher
from kernelmark.lazy import lazy

if TYPE_CHECKING:
    from kernelmark.device.accelerator import AcceleratorDevice
    from kernelmark.device.cpu import CpuDevice
    from kernelmark.device.cuda import CudaDevice
    from kernelmark.device.fake import FakeDevice
    from kernelmark.device.memory import is_out_of_memory
    from kernelmark.device.probe import flush_verdict, measure_probe, probe_verdict
    from kernelmark.device.select import open_device, resolve_device

__all__ = [
    "AcceleratorDevice",
    "CacheSizes",
    "CpuDevice",
    "CudaDevice",
    "Device",
    "FakeDevice",
    "Flusher",
    "flush_verdict",
    "is_out_of_memory",
    "measure_probe",
    "open_device",
    "probe_verdict",
    "resolve_device",
]

__getattr__, __dir__ = lazy(__name__)
