"""Kernel files: one file with a solution, one with its reference, compared by the engine in a process of its own.

Names load when first used: parsing a command line needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmark.lazy import lazy

if TYPE_CHECKING:
    from kernelmark.kernelfile.document import KernelRun
    from kernelmark.kernelfile.request import Baseline, Language, Request
    from kernelmark.kernelfile.run import benchmark
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

__getattr__, __dir__ = lazy(__name__)
