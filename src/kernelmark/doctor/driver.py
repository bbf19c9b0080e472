"""The NVIDIA driver against the CUDA toolkit that torch is built with, and the access to its counters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kernelmark.doctor.finding import Finding, Severity
from kernelmark.doctor.machine import Machine

__all__ = ["findings", "numbers"]


def findings(machine: Machine) -> Iterator[Finding]:
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
