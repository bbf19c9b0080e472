"""Devices: what a call runs on, how its caches are made cold, and how it is described.

Nothing here imports torch until a device is opened, so that the types can be named anywhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelmark.device.base import CacheSizes, Device, Flusher

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

_HOME = {
    "AcceleratorDevice": "accelerator",
    "CpuDevice": "cpu",
    "CudaDevice": "cuda",
    "FakeDevice": "fake",
    "flush_verdict": "probe",
    "is_out_of_memory": "memory",
    "measure_probe": "probe",
    "open_device": "select",
    "probe_verdict": "probe",
    "resolve_device": "select",
}
"""Public name → the module of this package that holds it."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
