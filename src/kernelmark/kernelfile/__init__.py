"""Kernel files: one file with a solution, one with its reference, compared by the engine in a process of its own.

Names load when first used: parsing a command line needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelmark.kernelfile.languages import Language
    from kernelmark.kernelfile.request import Baseline, Request
    from kernelmark.kernelfile.run import KernelRun, benchmark
    from kernelmark.kernelfile.signature import Parameter, Signature, parse_signature
    from kernelmark.kernelfile.starting import write_pair
    from kernelmark.kernelfile.sweep import parse_sweep, run_sweep

__all__ = [
    "Baseline",
    "KernelRun",
    "Language",
    "Parameter",
    "Request",
    "Signature",
    "benchmark",
    "parse_signature",
    "parse_sweep",
    "run_sweep",
    "write_pair",
]

_HOME = {
    "Baseline": "request",
    "KernelRun": "run",
    "Language": "languages",
    "Parameter": "signature",
    "Request": "request",
    "Signature": "signature",
    "benchmark": "run",
    "parse_signature": "signature",
    "parse_sweep": "sweep",
    "run_sweep": "sweep",
    "write_pair": "starting",
}
"""Public name → the module of this package that holds it."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
