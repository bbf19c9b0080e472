"""torch and the accelerator that it finds: driver and toolkit, counters, clocks, and who else is on the device."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmark.doctor.machine import Finding, Machine, Severity, TorchFacts, either, text_of
from kernelmark.units import format_bytes

__all__ = ["accelerator", "driver", "numbers", "torch"]


def torch(machine: Machine) -> Iterator[Finding]:
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
    hidden = machine.environ.get("CUDA_VISIBLE_DEVICES")
    severity, found = Severity.MISSING, "this machine has an NVIDIA driver, and torch finds no device"
    fix = "see that nvidia-smi -L lists a device, and in a container that it was started with it"
    if facts.cuda is None:
        found = f"this machine has an NVIDIA driver, and torch {facts.version} is built without CUDA"
        fix = "install a torch with CUDA: pip install torch, without an index of CPU builds"
    elif hidden is not None:
        severity, found = Severity.WARNING, f"{found}; CUDA_VISIBLE_DEVICES is {hidden!r}"
        fix = "unset CUDA_VISIBLE_DEVICES, or let it name a device that is there (nvidia-smi -L lists them)"
    well = f"devices: {facts.devices}" if facts.devices and facts.cuda else None
    yield either("torch with CUDA", well, severity, found, fix)


def driver(machine: Machine) -> Iterator[Finding]:
    """Look at the driver, at ``ncu``, and at who may use the counters."""
    if not machine.has_nvidia:
        yield Finding("NVIDIA driver", Severity.OK, "none here, and none needed for the CPU")
        return
    yield _driver(machine)
    fix = "install Nsight Compute, and put ncu on the PATH, if a kernel's counters are wanted"
    yield either("ncu", machine.program("ncu"), Severity.NOTE, "not on the PATH; no timer needs it", fix)
    params = text_of(machine.root / "proc/driver/nvidia/params")
    if match := re.search(r"^RmProfilingAdminOnly: *([01])", params, re.MULTILINE):
        well, found = "open to every user" if match[1] == "0" else None, "only for root; no timer needs them"
        fix = "load the driver with NVreg_RestrictProfilingToAdminUsers=0, or run ncu as root"
        yield either("performance counters", well, Severity.NOTE, found, fix)


def numbers(version: str | None) -> tuple[int, int] | None:
    """Give the first two numbers of a version, ``None`` where it has none."""
    match = re.match(r"([0-9]+)\.([0-9]+)", version or "")
    return (int(match[1]), int(match[2])) if match else None


def _driver(machine: Machine) -> Finding:
    text = text_of(machine.root / "proc/driver/nvidia/version")
    match = re.search(r"\b([0-9]+\.[0-9]+(?:\.[0-9]+)?)\b", text)
    version = match[1] if match else (machine.device.driver if machine.device else None)
    named = f"version {version}" if version else "of unknown version"
    runs = machine.driver_cuda
    if runs is None:
        fix = "install the driver's libcuda, or start the container with its devices (--gpus all)"
        found = f"{named}, and its libcuda does not answer"
        return Finding("NVIDIA driver", Severity.MISSING, found, fix)
    wanted = numbers(machine.torch.cuda) if machine.torch else None
    can = f"{named}, runs CUDA up to {runs[0]}.{runs[1]}"
    if wanted is None or wanted <= runs:
        return Finding("NVIDIA driver", Severity.OK, can)
    needed = f"{wanted[0]}.{wanted[1]}"
    if wanted[0] > runs[0]:
        fix = f"install a newer driver, or a torch for CUDA {runs[0]}"
        return Finding("NVIDIA driver", Severity.MISSING, f"{can}; torch needs {needed}", fix)
    # minor versions are compatible, but what compiles on the fly (PTX) is not
    fix = f"install a driver for CUDA {needed}"
    return Finding("NVIDIA driver", Severity.NOTE, f"{can}; torch has {needed}", fix)


_HELD = {"application clock setting", "display clock setting", "sync boost"}


def accelerator(machine: Machine) -> Iterator[Finding]:
    """Look at the best device where it is no CPU."""
    device = machine.device
    if device is None or device.kind == "cpu":
        return
    if machine.measures_nvidia:
        failure = device.details.get("telemetry", "")
        well = f"reads this device; nvidia-ml-py {machine.version('nvidia-ml-py') or 'of unknown version'}"
        found = f"clocks, power and neighbours are not seen: {failure}"
        fix = "pip install 'kernelmark[cuda]'; if it is there, see that nvidia-smi works as this user"
        yield either("NVML", None if failure else well, Severity.WARNING, found, fix)
    yield from _clocks(machine)
    others = machine.telemetry.other_processes
    if others or machine.telemetry.clock_mhz is not None:  # otherwise nobody has looked
        found = f"on the device: {', '.join(others)}"
        fix = "end them, or measure on a device that nobody else uses (nvidia-smi lists who does)"
        well = None if others else "none on the device"
        yield either("other processes", well, Severity.WARNING, found, fix)
    persisting = device.details.get("persisting_l2", "")
    if persisting.startswith("not reset"):
        fix = "no kernel may ask for persisting lines (access policy windows), or time with a warm cache"
        yield Finding("persisting L2 lines", Severity.WARNING, persisting, fix)


def _clocks(machine: Machine) -> Iterator[Finding]:
    now = machine.telemetry
    if now.clock_mhz is None:
        return
    reasons = set(now.throttle_reasons)
    at = f"{now.clock_mhz:.0f} MHz"
    lowering, held = sorted(reasons - _HELD - {"idle"}), sorted(reasons & _HELD)
    fix = "let the device cool and other work end; a power cap is read and set with nvidia-smi --power-limit"
    well = None if lowering else f"{at}, {'idle' if 'idle' in reasons else 'lowered by nothing'}"
    yield either("clocks", well, Severity.WARNING, f"{at}, lowered: {', '.join(lowering)}", fix)
    if held:
        found = f"held at {at}: {', '.join(held)}"
        fix = "times compare only with times at the same clock; nvidia-smi --reset-gpu-clocks frees it"
    else:
        found = "none: the clock follows power and heat"
        fix = "where times of different days must compare, lock them: nvidia-smi --lock-gpu-clocks=MHZ"
    yield Finding("clock lock", Severity.NOTE, found, fix)
