"""The OpenMP runtime that parallel code calls: which library it is, and what to install where there is none.

torch's own libgomp will not do: LLVM's code calls ``__kmpc_*``, which only LLVM's and Intel's runtimes have.
"""

from __future__ import annotations

import ctypes.util
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from kernelmark.probe import Probe

__all__ = ["find_openmp"]

_DISTRIBUTIONS = {
    "cmeel-libomp": ("libomp.so", "libomp.dylib"),
    "intel-openmp": ("libiomp5.so", "libiomp5.dylib"),
}
"""Packages that carry a runtime, and its file, in the order of preference."""

_SYSTEM_NAMES = ("omp", "omp5", "iomp5")
"""What a runtime of the system's is called; Debian's ``libomp5`` package has ``libomp.so.5``."""


@lru_cache(maxsize=1)
def find_openmp() -> Probe:
    """Find the runtime: the probe's detail is the library to load, or why there is none."""
    for distribution, names in _DISTRIBUTIONS.items():
        if (found := _in_distribution(distribution, names)) is not None:
            return Probe(True, str(found))
    for name in _SYSTEM_NAMES:
        if (found := ctypes.util.find_library(name)) is not None:
            return Probe(True, found)
    return Probe(False, "no OpenMP runtime of LLVM's is installed (pip install 'kernelmark[mlir]')")


def _in_distribution(name: str, names: tuple[str, ...]) -> Path | None:
    try:
        files = metadata.distribution(name).files or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name in names and (path := Path(str(file.locate()))).is_file():
            return path.resolve()
    return None
