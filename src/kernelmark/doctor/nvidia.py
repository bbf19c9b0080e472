"""torch and the accelerator that it finds: driver and toolkit, counters, clocks, and who else is on the device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kernelmark.doctor.finding import Finding, Severity
from kernelmark.doctor.machine import Machine, TorchFacts
from kernelmark.units import format_bytes

__all__ = ["accelerator", "driver", "numbers", "torch"]

_INSTALL_CUDA = "install a torch with CUDA: pip install torch, without an index of CPU builds"


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


def driver(machine: Machine) -> Iterator[Finding]:
    """Look at the driver, at ``ncu``, and at who may use the counters."""
    if not machine.has_nvidia:
        yield Finding("NVIDIA driver", Severity.OK, "none here, and none needed for the CPU")
        return
    yield from _driver(machine)
    yield _ncu(machine)
    yield from _counters(machine.root)


def numbers(version: str | None) -> tuple[int, int] | None:
    """Give the first two numbers of a version, ``None`` where it has none."""
    match = re.match(r"([0-9]+)\.([0-9]+)", version or "")
    return (int(match[1]), int(match[2])) if match else None


def _driver(machine: Machine) -> Iterator[Finding]:
    text = _read(machine.root / "proc/driver/nvidia/version")
    match = re.search(r"\b([0-9]+\.[0-9]+(?:\.[0-9]+)?)\b", text)
    version = match[1] if match else (machine.device.driver if machine.device else None)
    named = f"version {version}" if version else "of unknown version"
    runs = machine.driver_cuda
    if runs is None:
        fix = "install the driver's libcuda, or start the container with its devices (--gpus all)"
        yield Finding("NVIDIA driver", Severity.MISSING, f"{named}, and its libcuda does not answer", fix)
        return
    wanted = numbers(machine.torch.cuda) if machine.torch else None
    can = f"{named}, runs CUDA up to {runs[0]}.{runs[1]}"
    if wanted is None or wanted <= runs:
        yield Finding("NVIDIA driver", Severity.OK, can)
    elif wanted[0] > runs[0]:
        fix = f"install a newer driver, or a torch for CUDA {runs[0]}"
        yield Finding("NVIDIA driver", Severity.MISSING, f"{can}; torch needs {wanted[0]}.{wanted[1]}", fix)
    else:  # minor versions are compatible, but what compiles on the fly (PTX) is not
        fix = f"install a driver for CUDA {wanted[0]}.{wanted[1]}"
        yield Finding("NVIDIA driver", Severity.NOTE, f"{can}; torch has {wanted[0]}.{wanted[1]}", fix)


def _ncu(machine: Machine) -> Finding:
    path = machine.program("ncu")
    if path:
        return Finding("ncu", Severity.OK, path)
    fix = "install Nsight Compute, and put ncu on the PATH, if a kernel's counters are wanted"
    return Finding("ncu", Severity.NOTE, "not on the PATH; no timer needs it", fix)


def _counters(root: Path) -> Iterator[Finding]:
    match = re.search(
        r"^RmProfilingAdminOnly: *([01])", _read(root / "proc/driver/nvidia/params"), re.MULTILINE
    )
    if match is None:
        return
    if match[1] == "0":
        yield Finding("performance counters", Severity.OK, "open to every user")
    else:
        fix = "load the driver with NVreg_RestrictProfilingToAdminUsers=0, or run ncu as root"
        yield Finding("performance counters", Severity.NOTE, "only for root; no timer needs them", fix)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not there, or not for this user
        return ""


_HELD = {"application clock setting", "display clock setting", "sync boost"}
_HARMLESS = {"idle"}


def accelerator(machine: Machine) -> Iterator[Finding]:
    """Look at the best device where it is no CPU."""
    device = machine.device
    if device is None or device.kind == "cpu":
        return
    if machine.measures_nvidia:
        yield _nvml(machine, device.details.get("telemetry", ""))
    yield from _clocks(machine)
    yield from _neighbours(machine)
    persisting = device.details.get("persisting_l2", "")
    if persisting.startswith("not reset"):
        fix = "no kernel may ask for persisting lines (access policy windows), or time with a warm cache"
        yield Finding("persisting L2 lines", Severity.WARNING, persisting, fix)


def _nvml(machine: Machine, failure: str) -> Finding:
    if failure:
        fix = "pip install 'kernelmark[cuda]'; if it is there, see that nvidia-smi works as this user"
        return Finding("NVML", Severity.WARNING, f"clocks, power and neighbours are not seen: {failure}", fix)
    version = machine.version("nvidia-ml-py") or "of unknown version"
    return Finding("NVML", Severity.OK, f"reads this device; nvidia-ml-py {version}")


def _clocks(machine: Machine) -> Iterator[Finding]:
    now = machine.telemetry
    if now.clock_mhz is None:
        return
    reasons = set(now.throttle_reasons)
    at = f"{now.clock_mhz:.0f} MHz"
    lowering = sorted(reasons - _HELD - _HARMLESS)
    if lowering:
        fix = "let the device cool and other work end; a power cap is read and set with nvidia-smi --power-limit"
        yield Finding("clocks", Severity.WARNING, f"{at}, lowered: {', '.join(lowering)}", fix)
    else:
        why = "idle" if "idle" in reasons else "lowered by nothing"
        yield Finding("clocks", Severity.OK, f"{at}, {why}")
    if reasons & _HELD:
        held = f"held at {at}: {', '.join(sorted(reasons & _HELD))}"
        fix = "times compare only with times at the same clock; nvidia-smi --reset-gpu-clocks frees it"
        yield Finding("clock lock", Severity.NOTE, held, fix)
    else:
        fix = "where times of different days must compare, lock them: nvidia-smi --lock-gpu-clocks=MHZ"
        yield Finding("clock lock", Severity.NOTE, "none: the clock follows power and heat", fix)


def _neighbours(machine: Machine) -> Iterator[Finding]:
    others = machine.telemetry.other_processes
    if others:
        fix = "end them, or measure on a device that nobody else uses (nvidia-smi lists who does)"
        yield Finding("other processes", Severity.WARNING, f"on the device: {', '.join(others)}", fix)
    elif machine.telemetry.clock_mhz is not None:  # otherwise nobody has looked
        yield Finding("other processes", Severity.OK, "none on the device")
