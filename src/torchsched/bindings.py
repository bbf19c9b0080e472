"""The one door to torch-mlir's Python modules: imported when asked for, and its absence said with the fix.

torch-mlir ships no type stubs, so its objects are ``Any`` here; the aliases say which are meant.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

from kernelmark import probe

__all__ = ["Context", "Module", "Operation", "available", "bindings"]

Context: TypeAlias = Any
"""``torch_mlir.ir.Context``; a module lives only in the context it was made in."""
Module: TypeAlias = Any
"""``torch_mlir.ir.Module``."""
Operation: TypeAlias = Any
"""``torch_mlir.ir.Operation`` or a view of one."""


@cache  # asked for at every operation that is read: a twentieth of a compilation
def bindings(name: str) -> Any:
    """Import ``torch_mlir.<name>``, such as ``ir`` or ``dialects.transform``.

    Raises:
        UnavailableError: torch-mlir is not installed.
    """
    probe.require_module("torch_mlir", extra="mlir")
    return probe.require_module(f"torch_mlir.{name}", extra="mlir")


def available() -> probe.Probe:
    """Say whether torch-mlir is installed, without importing it."""
    return probe.module("torch_mlir", extra="mlir")
