"""kernelmark: is this kernel right, and how fast is it really, next to everything else I could use?

The names below are loaded when first used, so that ``import kernelmark`` imports no framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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

_HOMES = {
    "DistributedBenchContext": "kernelmark.launches",
    "VerificationError": "kernelmark.errors",
    "Work": "kernelmark.roofline",
    "bench": "kernelmark.launches",
    "bench_kernel": "kernelmark.timing",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kernelmark' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOMES.get(name, "kernelmark.harness")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
