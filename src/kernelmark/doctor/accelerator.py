"""An accelerator's state: NVML, clocks and what lowers or holds them, and who else is on the device."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmark.doctor.finding import Finding, Severity
from kernelmark.doctor.machine import Machine

__all__ = ["findings"]

_HELD = {"application clock setting", "display clock setting", "sync boost"}
_HARMLESS = {"idle"}


def findings(machine: Machine) -> Iterator[Finding]:
    """Look at the best device where it is no CPU."""
    device = machine.device
    if device is None or device.kind == "cpu":
        return
    if machine.measures_nvidia:
        yield _nvml(machine, device.details.get("telemetry", ""))
    yield from _clocks(machine)
    yield from _others(machine)
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


def _others(machine: Machine) -> Iterator[Finding]:
    others = machine.telemetry.other_processes
    if others:
        fix = "end them, or measure on a device that nobody else uses (nvidia-smi lists who does)"
        yield Finding("other processes", Severity.WARNING, f"on the device: {', '.join(others)}", fix)
    elif machine.telemetry.clock_mhz is not None:  # otherwise nobody has looked
        yield Finding("other processes", Severity.OK, "none on the device")
