"""What each way in needs besides torch: compilers, parsers, packages. Without one its own way is shut."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmark.doctor.finding import Finding, Severity
from kernelmark.doctor.machine import Machine

__all__ = ["ways_in"]

# module, what it is for, the extra of this package that installs it
_MODULES = (
    ("pytest", "benchmark files of an op library, and their options", "pytest"),
    ("tree_sitter", "kernel files in C++ and CUDA: reading their signatures", "kernelfile"),
    ("torch_mlir", "models compiled by MLIR, and torch.compile(backend='kernelmark-mlir')", "mlir"),
    ("einops", "two models of KernelBench's level 3, 48 and 49", "kernelbench"),
)


def ways_in(machine: Machine) -> Iterator[Finding]:
    """Look for what each way in needs; a lack is a note, since the other ways are open."""
    yield from _compilers(machine)
    for module, purpose, extra in _MODULES:
        if machine.module(module):
            yield Finding(module, Severity.OK, f"for {purpose}")
        else:
            fix = f"pip install 'kernelmark[{extra}]'"
            yield Finding(module, Severity.NOTE, f"not installed; for {purpose}", fix)


def _compilers(machine: Machine) -> Iterator[Finding]:
    purpose = "kernel files in C and C++, with --compile"
    compiler = machine.compiler
    if compiler is None:
        fix = "install g++ or clang++, or name one in CXX"
        yield Finding("C++ compiler", Severity.NOTE, f"none; for {purpose}", fix)
    else:
        yield Finding("C++ compiler", Severity.OK, f"{compiler}, for {purpose}")
        if machine.openmp:
            yield Finding("OpenMP", Severity.OK, f"{compiler} -fopenmp builds (--compile-flags=-fopenmp)")
        else:
            fix = "install the compiler's OpenMP (libgomp, libomp-dev), or share the work by std::thread"
            yield Finding("OpenMP", Severity.NOTE, f"{compiler} -fopenmp builds nothing", fix)
    if nvcc := machine.program("nvcc"):
        yield Finding("nvcc", Severity.OK, f"{nvcc}, for kernel files in CUDA, with --compile")
    elif machine.has_nvidia:
        fix = "install the CUDA toolkit, and put its nvcc on the PATH"
        yield Finding("nvcc", Severity.NOTE, "not on the PATH; for kernel files in CUDA, with --compile", fix)
    else:
        fix = "none is needed without an NVIDIA device; a library that was built elsewhere runs as it is"
        yield Finding("nvcc", Severity.NOTE, "not on the PATH; for kernel files in CUDA", fix)
