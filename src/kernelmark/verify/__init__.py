"""Checks: whether outputs are right, whether inputs were left alone, and whether the check can fail at all.

It gets outputs, inputs and a declaration. It knows no case, no runner and no timer. Declarations and
tolerances import no torch, so an op library can name them anywhere; the rest loads when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelmark.verify.declarations import (
    Custom,
    Declaration,
    Exact,
    Noncomparable,
    Partial,
    ReferenceInfeasible,
    Unestablished,
    require_reference,
)
from kernelmark.verify.tolerance import Elementwise, Normalised, Reduction, Tolerance, for_dtype

if TYPE_CHECKING:
    from kernelmark.verify.controls import run_controls, vacuous
    from kernelmark.verify.guards import InputGuard, differing
    from kernelmark.verify.numerics import compare
    from kernelmark.verify.poisoning import Unwritten, apart_from, poison, untouched, unwritten
    from kernelmark.verify.stale import StaleGuard
    from kernelmark.verify.structure import detached_copy
    from kernelmark.verify.verdict import Verdict, check_outputs

__all__ = [
    "Custom",
    "Declaration",
    "Elementwise",
    "Exact",
    "InputGuard",
    "Noncomparable",
    "Normalised",
    "Partial",
    "Reduction",
    "ReferenceInfeasible",
    "StaleGuard",
    "Tolerance",
    "Unestablished",
    "Unwritten",
    "Verdict",
    "apart_from",
    "check_outputs",
    "compare",
    "detached_copy",
    "differing",
    "for_dtype",
    "poison",
    "require_reference",
    "run_controls",
    "untouched",
    "unwritten",
    "vacuous",
]

_HOME = {
    "InputGuard": "guards",
    "StaleGuard": "stale",
    "Unwritten": "poisoning",
    "Verdict": "verdict",
    "apart_from": "poisoning",
    "check_outputs": "verdict",
    "compare": "numerics",
    "detached_copy": "structure",
    "differing": "guards",
    "poison": "poisoning",
    "run_controls": "controls",
    "untouched": "poisoning",
    "unwritten": "poisoning",
    "vacuous": "controls",
}
"""Public name → the module of this package that holds it."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
