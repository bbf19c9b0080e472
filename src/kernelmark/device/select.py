"""Opens the device that a name asks for, or the best there is."""

from __future__ import annotations

import re

from kernelmark.device.base import Device
from kernelmark.errors import UnavailableError, UsageError

__all__ = ["open_device", "resolve_device"]

_NAME = re.compile(r"([a-z]+)(?::([0-9]{1,4}))?")


def open_device(name: str | None = None) -> Device:
    """Open the device ``name``: ``cpu``, ``cuda``, ``cuda:1``, ``xpu``, ...

    ``None`` or ``auto`` is the best there is: a CUDA device, then another accelerator, then the CPU.

    Raises:
        UsageError: the name is not written like a device's.
        UnavailableError: this machine has no such device; the message lists those it has.
    """
    kind, index = _parse(name or "auto")
    if kind == "auto":
        kind = next(iter(_kinds()))
    if kind == "cpu" and index == 0:
        from kernelmark.device.cpu import CpuDevice

        return CpuDevice()
    if kind == "cuda":
        from kernelmark.device.cuda import CudaDevice

        return CudaDevice(index)
    if kind != "cpu" and kind in _kinds():
        from kernelmark.device.accelerator import AcceleratorDevice

        return AcceleratorDevice(kind, index)
    raise UnavailableError(f"no device {name!r} here; there is {_listed()}")


def resolve_device(name: str | None = None) -> str:
    """Give the name of the device that :func:`open_device` would open, such as ``cuda:0``, and open nothing.

    Raises:
        UsageError: the name is not written like a device's.
    """
    kind, index = _parse(name or "auto")
    if kind == "auto":
        kind = next(iter(_kinds()))
    return kind if kind == "cpu" and index == 0 else f"{kind}:{index}"


def _parse(name: str) -> tuple[str, int]:
    match = _NAME.fullmatch(name.strip().lower())
    if match is None or (match[1] == "auto" and match[2]):
        raise UsageError(
            f"{name!r} is no device; write 'auto', 'cpu', or a device of torch with its number, such as"
            " 'cuda:1'"
        )
    return match[1], int(match[2] or 0)


def _kinds() -> dict[str, int]:
    """Give each kind of device there is with its count, the best first."""
    import torch

    found: dict[str, int] = {}
    if torch.accelerator.is_available():
        current = torch.accelerator.current_accelerator()
        if current is not None:
            found[current.type] = torch.accelerator.device_count()
    return {**found, "cpu": 1}


def _listed() -> str:
    names = [f"{kind}:{index}" for kind, count in _kinds().items() if kind != "cpu" for index in range(count)]
    return ", ".join([*names, "cpu"])
