"""What NVIDIA's management library says of one device: clocks, power, heat, throttling, other processes.

Utilisation is not asked for: it reads 0 for work that is shorter than its sampling period, which is what a
benchmark runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from kernelmark.probe import module
from kernelmark.records import Telemetry

__all__ = ["NvmlReader", "others_on_device", "throttle_reasons"]

# The bits of nvmlClocksEventReasons, in words; idle and a clock that the user asked for are in the set too,
# since both change what a time means.
_REASONS = {
    0x1: "idle",
    0x2: "application clock setting",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock setting",
}


class NvmlReader:
    """Reads the device with this UUID; where that is not possible, ``reason`` says why and it reads nothing.

    The UUID finds the device whatever ``CUDA_VISIBLE_DEVICES`` hides and reorders; NVML knows nothing of that
    variable. The PCI address is for an NVML that does not know the UUID.
    """

    def __init__(self, uuid: str | None, pci_address: str | None) -> None:
        self.reason = ""
        self._nvml: Any = None
        self._handle: Any = None
        self._ask_reasons: Callable[[Any], int] | None = None
        found = module("pynvml", extra="cuda")
        if not found:
            self.reason = found.detail
            return
        import pynvml

        self._nvml = pynvml
        self._ask_reasons = _reasons_call(pynvml)
        try:
            pynvml.nvmlInit()
            self._handle = _find(pynvml, uuid, pci_address)
        except pynvml.NVMLError as error:
            self.reason = f"NVML cannot read this device: {error}"

    def driver(self) -> str | None:
        """Give the driver's version."""
        if self._handle is None:
            return None
        version = self._nvml.nvmlSystemGetDriverVersion()
        return version.decode() if isinstance(version, bytes) else version

    def read(self) -> Telemetry:
        """Read the device now; about 0.1 ms on an H200."""
        if self._handle is None:
            return Telemetry()
        nvml = self._nvml
        bits = self._ask(self._ask_reasons)
        power_mw = self._ask(nvml.nvmlDeviceGetPowerUsage)
        processes = self._ask(nvml.nvmlDeviceGetComputeRunningProcesses) or ()
        return Telemetry(
            clock_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=self._ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            throttle_reasons=throttle_reasons(bits or 0),
            other_processes=others_on_device([process.pid for process in processes], os.getpid()),
        )

    def _ask(self, call: Callable[..., Any] | None, *more: Any) -> Any:
        """Ask for one thing; ``None`` where this device does not tell it, as under some hypervisors."""
        if call is None:
            return None
        try:
            return call(self._handle, *more)
        except self._nvml.NVMLError:
            return None


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Put NVML's clock event reasons into words."""
    known = tuple(word for bit, word in _REASONS.items() if bits & bit)
    rest = bits & ~sum(_REASONS)
    return (*known, f"unknown reason {rest:#x}") if rest else known


def others_on_device(pids: Sequence[int], own: int) -> tuple[str, ...]:
    """Name the processes that use the device besides this one.

    In a container NVML lists the pids of the host, this process's own among them under a number that nobody
    inside knows. One entry is then taken for it, and the others are counted.
    """
    if not pids:
        return ()
    if own in pids:
        return tuple(f"pid {pid}" for pid in pids if pid != own)
    others = len(pids) - 1
    return (f"{others} with the pid of another namespace",) if others else ()


def _reasons_call(nvml: Any) -> Callable[[Any], int] | None:
    """Give the call under its present name, or the one it had before driver 535."""
    for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        if hasattr(nvml, name):
            return getattr(nvml, name)
    return None


def _find(nvml: Any, uuid: str | None, pci_address: str | None) -> Any:
    if uuid:
        try:
            return nvml.nvmlDeviceGetHandleByUUID(uuid)
        except nvml.NVMLError:
            if not pci_address:
                raise
    return nvml.nvmlDeviceGetHandleByPciBusId(pci_address or "")
