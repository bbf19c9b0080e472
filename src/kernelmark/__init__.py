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
        Session,
        SessionOptions,
        Unavailable,
        cases,
        compare,
        use_session,
    )
    from kernelmark.launches import DistributedBenchContext, bench
    from kernelmark.records import Cache
    from kernelmark.roofline import Work
    from kernelmark.timing import Budget, bench_kernel
    from kernelmark.verify import Elementwise, Exact

__all__ = [
    "Budget",
    "Cache",
    "Case",
    "Comparison",
    "DistributedBenchContext",
    "Elementwise",
    "Entry",
    "Exact",
    "Implementation",
    "Runner",
    "Session",
    "SessionOptions",
    "Unavailable",
    "VerificationError",
    "Work",
    "bench",
    "bench_kernel",
    "cases",
    "compare",
    "use_session",
]

__getattr__, __dir__ = lazy(__name__)
