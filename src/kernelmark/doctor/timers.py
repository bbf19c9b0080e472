"""The instruments: each timer as it was tried, and the libraries under them against each other."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmark.doctor.finding import Finding, Severity
from kernelmark.doctor.machine import Machine, TimerTrial
from kernelmark.doctor.nvidia import numbers

__all__ = ["instruments"]

_LIBCUPTI = ("nvidia-cuda-cupti", "nvidia-cuda-cupti-cu13", "nvidia-cuda-cupti-cu12")
"""The distributions in which torch's wheels get their libcupti; a torch built otherwise has its toolkit's."""

_OTHER_TIMER = "ask for another timer (--kernelmark-timer), or mend what the message names"


def instruments(machine: Machine) -> Iterator[Finding]:
    """Look at the timers that serve the best device, and at what they stand on."""
    yield from (_timer(trial) for trial in machine.timers)
    if machine.measures_nvidia:
        yield _cupti(machine)
    yield from _triton(machine)


def _timer(trial: TimerTrial) -> Finding:
    what = f"timer {trial.name}"
    if not trial.failure:
        default = ", the default here" if trial.is_default else ""
        return Finding(what, Severity.OK, f"works{default}: {trial.reads}")
    if trial.is_default and trial.unavailable:
        return Finding(what, Severity.MISSING, f"the default here: {trial.failure}", _default_fix(trial))
    severity = Severity.NOTE if trial.unavailable else Severity.WARNING
    return Finding(what, severity, trial.failure, _OTHER_TIMER)


def _default_fix(trial: TimerTrial) -> str:
    if trial.name == "cupti":
        return "pip install 'kernelmark[cuda]', or time with device_events (--kernelmark-timer)"
    return _OTHER_TIMER


def _cupti(machine: Machine) -> Finding:
    binding = machine.version("cupti-python")
    toolkit = machine.torch.cuda if machine.torch else None
    library = next(((name, v) for name in _LIBCUPTI if (v := machine.version(name))), None)
    wanted = numbers(library[1]) if library else numbers(toolkit)
    source = f"{library[0]} {library[1]}" if library else f"the libcupti of CUDA {toolkit}"
    if binding is None:
        return Finding("cupti-python", Severity.MISSING, "not installed", "pip install 'kernelmark[cuda]'")
    if wanted is None or numbers(binding) == wanted:
        return Finding("cupti-python", Severity.OK, f"{binding}, as {source}")
    fix = f"pip install --no-deps 'cupti-python=={wanted[0]}.{wanted[1]}.*'"
    found = f"{binding} beside {source}: records may be misread, or not arrive at all"
    return Finding("cupti-python", Severity.WARNING, found, fix)


def _triton(machine: Machine) -> Iterator[Finding]:
    version = machine.version("triton")
    if version is None:
        yield Finding("Triton", Severity.NOTE, "not installed; its kernels cannot run", "pip install triton")
        return
    yield Finding("Triton", Severity.OK, version)
    if machine.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        found = "TRITON_INTERPRET is set: kernels run in an interpreter, and their times mean nothing"
        yield Finding("Triton's interpreter", Severity.WARNING, found, "unset TRITON_INTERPRET")
    if not machine.measures_nvidia:
        return
    proton = machine.module("triton.profiler")
    if not proton:
        fix = "install a Triton that comes with triton.profiler"
        yield Finding("Proton", Severity.NOTE, "Triton comes without it", fix)
    elif machine.environ.get("TRITON_PROTON_DISABLE"):
        fix = "unset TRITON_PROTON_DISABLE"
        yield Finding("Proton", Severity.NOTE, "switched off by TRITON_PROTON_DISABLE", fix)
    else:
        yield Finding("Proton", Severity.OK, f"with Triton {version}")
