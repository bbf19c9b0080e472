"""kernelmark: is this kernel right, and how fast is it really, next to everything else I could use?

The names below are loaded when first used, so that ``import kernelmark`` imports no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmark.lazy import lazy

if TYPE_CHECKING:
    from kernelmark.errors import VerificationError
    from kernelmark.harness import (
        Case,
        Comparison,
        Entry,
        Implementation,
        Runner,
        SessionOptions,
        Unavailable,
        cases,
        compare,
    )
    from kernelmark.launches import DistributedBenchContext, bench
    from kernelmark.roofline import Work
    from kernelmark.timing import bench_kernel

__all__ = [
    "Case",
    "Comparison",
    "DistributedBenchContext",
    "Entry",
    "Implementation",
    "Runner",
    "SessionOptions",
    "Unavailable",
    "VerificationError",
    "Work",
    "bench",
    "bench_kernel",
    "cases",
    "compare",
]

__getattr__, __dir__ = lazy(__name__)
