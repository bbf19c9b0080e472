"""What every op of this library is: one computation, with a kernel for GPUs and a compiled path for CPUs.

The device of the inputs chooses the path, and ``backend`` says which one it was. Nothing falls back: a path
that fails raises.
"""

from __future__ import annotations

import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from types import FunctionType, MethodType
from typing import Any, ClassVar

import torch

from kernelmark.roofline import Work

__all__ = ["CPU_VARIABLE", "CpuCompiler", "Op", "cpu_compiler", "cxx_compiler", "dtype_of", "with_own_code"]

CPU_VARIABLE = "TILEOPS_CPU"
"""The variable of the environment that says what compiles an op for the CPU."""


class CpuCompiler(StrEnum):
    """What can compile an op for the CPU."""

    INDUCTOR = "inductor"
    """Torch's own; needs a C++ compiler, and without one the composition runs as it is."""
    MLIR = "mlir"
    """kernelmark's backend for torch.compile; needs the extra ``mlir`` and no compiler."""


def cpu_compiler() -> CpuCompiler:
    """Say what compiles an op for the CPU here: inductor, unless the environment asks for another.

    Raises:
        ValueError: it asks for what there is none of.
    """
    asked = os.environ.get(CPU_VARIABLE, CpuCompiler.INDUCTOR)
    if asked not in list(CpuCompiler):
        raise ValueError(f"{CPU_VARIABLE}={asked!r}: use one of {', '.join(CpuCompiler)}")
    return CpuCompiler(asked)


def dtype_of(name: str) -> torch.dtype:
    """Give torch's dtype of this name, such as ``bfloat16``.

    Raises:
        ValueError: torch has no such dtype.
    """
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):  # the name is wrong, not its type
        raise ValueError(f"torch has no dtype {name!r}; use a name such as float16, bfloat16, float32")  # noqa: TRY004
    return found


@lru_cache(maxsize=1)
def cxx_compiler() -> str | None:
    """Find the C++ compiler that inductor would call; ``None`` where there is none.

    Inductor looks for one name only: another compiler on the PATH counts when ``CXX`` names it.
    """
    return shutil.which(os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++"))


class Op(ABC):
    """One op. Subclasses give ``forward``, ``launch`` and ``eval_roofline``.

    ``forward(*inputs)`` is the computation as a composition of torch calls: the CPU path compiles it.
    ``launch(*inputs)`` runs the Triton kernel on the GPU that holds the inputs.
    """

    pipeline: ClassVar[str] = "default"
    """The schedule that suits the op best, where MLIR compiles it."""

    def __init__(self) -> None:
        self._on_cpu: tuple[Callable[..., Any], str] | None = None  # the path and what it is called
        self.backend = ""
        """How the last call computed; empty before the first.

        ``triton``; ``torch inductor``; ``torch inductor (library calls)`` where inductor generated no code and
        calls torch's own function, as it does for a bare matrix product; ``mlir`` with the schedule and the
        number of threads; or the composition, and why.
        """

    def __call__(self, *inputs: Any) -> Any:
        """Compute; the first tensor among the inputs says where."""
        device = next(x.device for x in inputs if isinstance(x, torch.Tensor))
        if device.type == "cpu":
            if self._on_cpu is None:
                return self._first(*inputs)
            path, self.backend = self._on_cpu
            return path(*inputs)
        self.backend = "triton"
        if device.type != "cuda":
            return self.launch(*inputs)
        with torch.cuda.device(device):  # Triton launches on the current device, whatever holds the inputs
            return self.launch(*inputs)

    @abstractmethod
    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Compute as a composition of torch calls; an op names its inputs."""

    @abstractmethod
    def launch(self, *inputs: Any, **named: Any) -> Any:
        """Compute with the Triton kernel; the same inputs."""

    @abstractmethod
    def eval_roofline(self) -> Work:
        """Say how much work one call is."""

    def _first(self, *inputs: Any) -> Any:
        """Compute on the CPU for the first time; the path is kept only if it could be built and ran."""
        if cpu_compiler() is CpuCompiler.MLIR:
            path, told, out = self._through_mlir(*inputs)
        elif cxx_compiler() is None:
            path, told = self.forward, "torch composition (no C++ compiler)"
            out = path(*inputs)
        else:
            from torch._inductor import metrics  # counts what inductor generated, its cache's hits included

            path = torch.compile(with_own_code(self.forward), dynamic=False, fullgraph=True)
            before = metrics.generated_kernel_count
            out = path(*inputs)
            generated = metrics.generated_kernel_count > before
            told = "torch inductor" if generated else "torch inductor (library calls)"
        self._on_cpu, self.backend = (path, told), told
        return out

    def _through_mlir(self, *inputs: Any) -> tuple[Callable[..., Any], str, Any]:
        """Compile with MLIR: give the path, what it is called, and what the first call gave."""
        from kernelmark.mlir.backend import Backend, BackendOptions

        backend = Backend(BackendOptions(pipeline=self.pipeline))
        path = torch.compile(with_own_code(self.forward), backend=backend, dynamic=False, fullgraph=True)
        out = path(*inputs)
        threads = max((each.compiled.threads for each in backend.subgraphs if each.compiled), default=1)
        return path, f"mlir {self.pipeline} ({threads} thread{'s' if threads > 1 else ''})", out


def with_own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a Python function, or a bound method, a code object of its own; anything else is left as it is.

    Dynamo counts recompilations by code object and refuses the ninth, and all objects of a class share one:
    the ninth case of a class would fail because of the eight before it.
    """
    shared = getattr(function, "__func__", function)
    if not isinstance(shared, FunctionType):
        return function
    own = FunctionType(
        shared.__code__.replace(),
        shared.__globals__,
        shared.__name__,
        shared.__defaults__,
        shared.__closure__,
    )
    own.__kwdefaults__ = shared.__kwdefaults__
    return own if shared is function else MethodType(own, function.__self__)  # pyright: ignore[reportFunctionMemberAccess]
