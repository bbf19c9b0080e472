"""The numerical rules that the workloads of this repository declare: kernelmark's, under one short name.

A workload's ``verification()`` returns one of the declarations; the rules stand in :mod:`kernelmark.verify`.
"""

from kernelmark.verify.declarations import (
    Custom,
    Declaration,
    Exact,
    Noncomparable,
    Partial,
    ReferenceInfeasible,
    Unestablished,
)
from kernelmark.verify.tolerance import Elementwise, Normalised, Reduction, Tolerance, for_dtype

__all__ = [
    "Custom",
    "Declaration",
    "Elementwise",
    "Exact",
    "Noncomparable",
    "Normalised",
    "Partial",
    "Reduction",
    "ReferenceInfeasible",
    "Tolerance",
    "Unestablished",
    "for_dtype",
]
