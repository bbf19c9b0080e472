"""torch, and whether it can use what this machine has."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmark.doctor.finding import Finding, Severity
from kernelmark.doctor.machine import Machine, TorchFacts
from kernelmark.units import format_bytes

__all__ = ["findings"]

_INSTALL_CUDA = "install a torch with CUDA: pip install torch, without an index of CPU builds"


def findings(machine: Machine) -> Iterator[Finding]:
    """Look at torch, its build, and the best device."""
    facts = machine.torch
    if facts is None:
        yield Finding("torch", Severity.MISSING, "not installed", "pip install torch")
        return
    built = f"CUDA {facts.cuda}" if facts.cuda else f"ROCm {facts.hip}" if facts.hip else "no GPU toolkit"
    yield Finding("torch", Severity.OK, f"{facts.version}, built with {built}")
    yield from _nvidia(machine, facts)
    if machine.device is not None:
        device = machine.device
        size = f", {format_bytes(device.memory_bytes)}" if device.memory_bytes else ""
        yield Finding("best device", Severity.OK, f"{device.kind}: {device.name}{size}")


def _nvidia(machine: Machine, facts: TorchFacts) -> Iterator[Finding]:
    if not machine.has_nvidia:
        return
    if facts.cuda is None:
        found = f"this machine has an NVIDIA driver, and torch {facts.version} is built without CUDA"
        yield Finding("torch with CUDA", Severity.MISSING, found, _INSTALL_CUDA)
    elif not facts.devices:
        hidden = machine.environ.get("CUDA_VISIBLE_DEVICES")
        found = "this machine has an NVIDIA driver, and torch finds no device"
        if hidden is not None:
            yield Finding(
                "torch with CUDA",
                Severity.WARNING,
                f"{found}; CUDA_VISIBLE_DEVICES is {hidden!r}",
                "unset CUDA_VISIBLE_DEVICES, or let it name a device that is there (nvidia-smi -L lists them)",
            )
        else:
            fix = "see that nvidia-smi -L lists a device, and in a container that it was started with it"
            yield Finding("torch with CUDA", Severity.MISSING, found, fix)
    else:
        yield Finding("torch with CUDA", Severity.OK, f"devices: {facts.devices}")
