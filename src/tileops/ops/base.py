"""What every op of this library is: one computation, with a kernel for GPUs and a compiled path for CPUs.

The device of the inputs chooses the path, and ``backend`` says which one it was. Nothing falls back: a path
that fails raises.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType, MethodType
from typing import Any

import torch

from kernelmark.roofline import Work

__all__ = ["Op", "cxx_compiler", "dtype_of"]


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
    """Find the C++ compiler that inductor needs; ``None`` where there is none."""
    asked = os.environ.get("CXX")
    names = (asked,) if asked else ("g++", "clang++", "c++")
    return next((path for name in names if (path := shutil.which(name))), None)


class Op(ABC):
    """One op. Subclasses give ``forward``, ``launch`` and ``eval_roofline``.

    ``forward(*inputs)`` is the computation as a composition of torch calls: the CPU path compiles it.
    ``launch(*inputs)`` runs the Triton kernel on the GPU that holds the inputs.
    """

    def __init__(self) -> None:
        self._compiled: Callable[..., Any] | None = None
        self.backend = ""
        """How the last call computed: ``triton``, ``torch inductor``, or the composition and why."""

    def __call__(self, *inputs: Any) -> Any:
        """Compute; the first tensor among the inputs says where."""
        device = next(x.device for x in inputs if isinstance(x, torch.Tensor))
        if device.type == "cpu":
            if self._compiled is None:
                self._compiled = self._compile()
            return self._compiled(*inputs)
        self.backend = "triton"
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

    def _compile(self) -> Callable[..., Any]:
        if cxx_compiler() is None:
            self.backend = "torch composition (no C++ compiler)"
            return self.forward
        self.backend = "torch inductor"
        return torch.compile(_with_own_code(self.forward), dynamic=False, fullgraph=True)


def _with_own_code(method: Any) -> Callable[..., Any]:
    """Give a bound method a code object of its own.

    Dynamo counts recompilations by code object and refuses the ninth, and every op of a class would share
    one: the ninth case of a class would fail because of the eight before it.
    """
    shared = method.__func__
    own = FunctionType(
        shared.__code__.replace(),
        shared.__globals__,
        shared.__name__,
        shared.__defaults__,
        shared.__closure__,
    )
    return MethodType(own, method.__self__)
