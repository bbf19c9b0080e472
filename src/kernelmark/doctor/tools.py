"""What measures and what compiles: each timer as it was tried, the libraries under them, and what each way in needs."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmark.doctor.machine import Finding, Machine, Severity, TimerTrial, either
from kernelmark.doctor.nvidia import numbers

__all__ = ["instruments", "ways_in"]

_LIBCUPTI = ("nvidia-cuda-cupti", "nvidia-cuda-cupti-cu13", "nvidia-cuda-cupti-cu12")
"""The distributions in which torch's wheels get their libcupti; a torch built otherwise has its toolkit's."""


def instruments(machine: Machine) -> Iterator[Finding]:
    """Look at the timers that serve the best device, and at what they stand on."""
    yield from map(_timer, machine.timers)
    if machine.measures_nvidia:
        yield _cupti(machine)
    yield from _triton(machine)


def _timer(trial: TimerTrial) -> Finding:
    fix = "ask for another timer (--kernelmark-timer), or mend what the message names"
    severity, found = Severity.NOTE if trial.unavailable else Severity.WARNING, trial.failure
    if trial.is_default and trial.unavailable:
        severity, found = Severity.MISSING, f"the default here: {trial.failure}"
        if trial.name == "cupti":
            fix = "pip install 'kernelmark[cuda]', or time with device_events (--kernelmark-timer)"
    well = f"works{', the default here' if trial.is_default else ''}: {trial.reads}"
    return either(f"timer {trial.name}", None if trial.failure else well, severity, found, fix)


def _cupti(machine: Machine) -> Finding:
    binding = machine.version("cupti-python")
    if binding is None:
        return Finding("cupti-python", Severity.MISSING, "not installed", "pip install 'kernelmark[cuda]'")
    toolkit = machine.torch.cuda if machine.torch else None
    library = next(((name, v) for name in _LIBCUPTI if (v := machine.version(name))), None)
    wanted = numbers(library[1] if library else toolkit)
    source = f"{library[0]} {library[1]}" if library else f"the libcupti of CUDA {toolkit}"
    if wanted is None or numbers(binding) == wanted:
        return Finding("cupti-python", Severity.OK, f"{binding}, as {source}")
    fix = f"pip install --no-deps 'cupti-python=={wanted[0]}.{wanted[1]}.*'"
    found = f"{binding} beside {source}: records may be misread, or not arrive at all"
    return Finding("cupti-python", Severity.WARNING, found, fix)


def _triton(machine: Machine) -> Iterator[Finding]:
    version = machine.version("triton")
    missing = "not installed; its kernels cannot run"
    yield either("Triton", version, Severity.NOTE, missing, "pip install triton")
    if version is None:
        return
    if machine.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        found = "TRITON_INTERPRET is set: kernels run in an interpreter, and their times mean nothing"
        yield Finding("Triton's interpreter", Severity.WARNING, found, "unset TRITON_INTERPRET")
    if not machine.measures_nvidia:
        return
    if not machine.module("triton.profiler"):
        fix = "install a Triton that comes with triton.profiler"
        yield Finding("Proton", Severity.NOTE, "Triton comes without it", fix)
    else:
        off = machine.environ.get("TRITON_PROTON_DISABLE")
        found, fix = "switched off by TRITON_PROTON_DISABLE", "unset TRITON_PROTON_DISABLE"
        yield either("Proton", None if off else f"with Triton {version}", Severity.NOTE, found, fix)


# module, what it is for, the extra of this package that installs it
_MODULES = (
    ("pytest", "benchmark files of an op library, and their options", "pytest"),
    ("tree_sitter", "kernel files in C++ and CUDA: reading their signatures", "kernelfile"),
    ("torch_mlir", "models compiled by MLIR, and torch.compile(backend='kernelmark-mlir')", "mlir"),
    ("einops", "two models of KernelBench's level 3, 48 and 49", "kernelbench"),
)


def ways_in(machine: Machine) -> Iterator[Finding]:
    """Look for what each way in needs; a lack is a note, since the other ways are open."""
    purpose, compiler = "kernel files in C and C++, with --compile", machine.compiler
    well, fix = compiler and f"{compiler}, for {purpose}", "install g++ or clang++, or name one in CXX"
    yield either("C++ compiler", well, Severity.NOTE, f"none; for {purpose}", fix)
    if compiler is not None:
        well = f"{compiler} -fopenmp builds (--compile-flags=-fopenmp)" if machine.openmp else None
        fix = "install the compiler's OpenMP (libgomp, libomp-dev), or share the work by std::thread"
        yield either("OpenMP", well, Severity.NOTE, f"{compiler} -fopenmp builds nothing", fix)
    nvcc, purpose = machine.program("nvcc"), "for kernel files in CUDA"
    found, fix = f"not on the PATH; {purpose}", "install the CUDA toolkit, and put its nvcc on the PATH"
    if machine.has_nvidia:
        found = f"{found}, with --compile"
    else:
        fix = "none is needed without an NVIDIA device; a library that was built elsewhere runs as it is"
    yield either("nvcc", nvcc and f"{nvcc}, {purpose}, with --compile", Severity.NOTE, found, fix)
    for module, purpose, extra in _MODULES:
        well = f"for {purpose}" if machine.module(module) else None
        fix = f"pip install 'kernelmark[{extra}]'"
        yield either(module, well, Severity.NOTE, f"not installed; for {purpose}", fix)
