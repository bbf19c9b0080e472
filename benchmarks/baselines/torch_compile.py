"""A case's own reference, compiled by torch."""

from __future__ import annotations

import inspect
from types import FunctionType, MethodType
from typing import Any

import torch

from kernelmark import Case, Implementation, Unavailable
from tileops.ops.base import cxx_compiler

__all__ = ["compiled_reference"]


def compiled_reference(case: Case) -> Implementation | Unavailable:
    """Compile ``case.reference`` with inductor; unavailable on a CPU without a C++ compiler."""
    from kernelmark.harness import current_session

    if current_session().device.kind == "cpu" and cxx_compiler() is None:
        return Unavailable("torch.compile needs a C++ compiler on the CPU, and there is none (install g++)")
    reference = case.reference
    if reference is None:
        return Unavailable("the case has no reference to compile")
    return Implementation(
        run=torch.compile(_with_own_code(reference), dynamic=False), backend="torch inductor"
    )


def _with_own_code(function: Any) -> Any:
    """Give a method a code object of its own: dynamo counts recompilations by code object, and would refuse
    the ninth case of a workload because of the eight before it."""
    if not inspect.ismethod(function):
        return function
    shared: Any = function.__func__
    own = FunctionType(
        shared.__code__.replace(),
        shared.__globals__,
        shared.__name__,
        shared.__defaults__,
        shared.__closure__,
    )
    return MethodType(own, function.__self__)
