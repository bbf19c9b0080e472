"""What every op of this library is: one computation, with a kernel for GPUs and a compiled path for CPUs.

The device of the inputs chooses the path, and ``backend`` says which one it was. On a CPU the first compiler that is
here and can compile the op does, and ``backend`` says why those before it did not. What else fails raises.
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

from kernelmark import probe
from kernelmark.errors import KernelmarkError, ModelError, UnavailableError
from kernelmark.roofline import Work

__all__ = ["CPU_VARIABLE", "CpuCompiler", "Op", "cpu_compilers", "cxx_compiler", "dtype_of", "with_own_code"]

CPU_VARIABLE = "TILEOPS_CPU"
"""The variable of the environment that says what computes an op on the CPU, and that nothing else may."""


class CpuCompiler(StrEnum):
    """What can compute an op on the CPU, in the order in which they are asked."""

    MLIR = "mlir"
    """kernelmark's backend for torch.compile; needs the extra ``mlir`` and no compiler of C++."""
    INDUCTOR = "inductor"
    """Torch's own; needs a C++ compiler."""
    TORCH = "torch"
    """None: the composition runs call by call."""


def cpu_compilers() -> tuple[CpuCompiler, ...]:
    """Say what may compute an op on the CPU, the first choice first: all of them, or what the environment names.

    Raises:
        ValueError: it names what there is none of.
    """
    asked = os.environ.get(CPU_VARIABLE)
    if asked is None:
        return tuple(CpuCompiler)
    if asked not in list(CpuCompiler):
        raise ValueError(f"{CPU_VARIABLE}={asked!r}: use one of {', '.join(CpuCompiler)}")
    return (CpuCompiler(asked),)


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
    not_by_mlir: ClassVar[str] = ""
    """Why MLIR is not taken for the op unless it is asked for by name; empty where it is."""

    def __init__(self) -> None:
        self._on_cpu: tuple[Callable[..., Any], str] | None = None  # the path and what it is called
        self.backend = ""
        """How the last call computed; empty before the first.

        ``triton``; ``mlir`` with the schedule and the number of threads; ``torch inductor``, with ``library calls``
        in brackets where inductor generated no code and calls torch's own function, as it does for a bare matrix
        product; or ``torch composition``. Behind the last two stands why what comes before them was not taken.
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
        passed_over: list[str] = []
        *others, last = cpu_compilers()
        for compiler in others:
            try:
                return self._keep(compiler, inputs, passed_over)
            except _PassedOverError as why:
                passed_over.append(str(why))
        try:
            return self._keep(last, inputs, passed_over)
        except _PassedOverError as why:
            raise UnavailableError(
                f"{CPU_VARIABLE}={last}, and {type(self).__name__} cannot be computed so: {why}; without the"
                " variable the first that can be had is taken"
            ) from why.__cause__

    def _keep(self, compiler: CpuCompiler, inputs: tuple[Any, ...], passed_over: list[str]) -> Any:
        ways = {
            CpuCompiler.MLIR: self._through_mlir,
            CpuCompiler.INDUCTOR: self._through_inductor,
            CpuCompiler.TORCH: self._as_it_is,
        }
        path, name, remarks, out = ways[compiler](*inputs)
        behind = "; ".join([*remarks, *passed_over])
        self.backend = f"{name} ({behind})" if behind else name
        self._on_cpu = (path, self.backend)
        return out

    def _through_mlir(self, *inputs: Any) -> _Computed:
        if not probe.module("torch_mlir"):
            raise _PassedOverError("no torch-mlir")
        if self.not_by_mlir and cpu_compilers() != (CpuCompiler.MLIR,):
            raise _PassedOverError(self.not_by_mlir)
        from torchsched.backend import Backend, BackendOptions

        backend = Backend(BackendOptions(pipeline=self.pipeline))
        path = torch.compile(with_own_code(self.forward), backend=backend, dynamic=False, fullgraph=True)
        try:
            out = path(*inputs)
        except Exception as error:
            own = _of_kernelmark(error)
            if isinstance(own, ModelError | UnavailableError):
                raise _PassedOverError(_in_short(own)) from own
            raise
        threads = max((each.compiled.threads for each in backend.subgraphs if each.compiled), default=1)
        return path, f"mlir {self.pipeline}", [f"{threads} thread{'s' if threads > 1 else ''}"], out

    def _through_inductor(self, *inputs: Any) -> _Computed:
        if cxx_compiler() is None:
            raise _PassedOverError("no C++ compiler")
        from torch._inductor import metrics  # counts what inductor generated, its cache's hits included

        path = torch.compile(with_own_code(self.forward), dynamic=False, fullgraph=True)
        before = metrics.generated_kernel_count
        out = path(*inputs)
        generated = metrics.generated_kernel_count > before
        return path, "torch inductor", [] if generated else ["library calls"], out

    def _as_it_is(self, *inputs: Any) -> _Computed:
        return self.forward, "torch composition", [], self.forward(*inputs)


_Computed = tuple[Callable[..., Any], str, list[str], Any]
"""A path, what it is called, remarks on it, and what the first call gave."""


class _PassedOverError(Exception):
    """A compiler is not here, or cannot compile this op; the text says which, in a few words."""


def _of_kernelmark(error: BaseException | None) -> KernelmarkError | None:
    """Find the error of the backend's that torch's dynamo wrapped."""
    while error is not None and not isinstance(error, KernelmarkError):
        error = getattr(error, "inner_exception", None) or error.__cause__
    return error


def _in_short(error: KernelmarkError) -> str:
    if isinstance(error, ModelError):
        return f"mlir stopped at {error.stage}{f' of {error.op}' if error.op else ''}"
    return f"mlir: {str(error).partition(chr(10))[0]}"


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
