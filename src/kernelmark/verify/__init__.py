"""Checks: whether outputs are right, whether inputs were left alone, and whether the check can fail at all.

It gets outputs, inputs and a declaration. It knows no case, no runner and no timer. Declarations and
tolerances import no torch, so an op library can name them anywhere; the rest loads when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmark.lazy import lazy
from kernelmark.verify.declarations import (
    Custom,
    Declaration,
    Exact,
    Noncomparable,
    Partial,
    ReferenceInfeasible,
    Unestablished,
    require_declaration,
    require_reference,
)
from kernelmark.verify.tolerance import (
    Elementwise,
    Form,
    Normalised,
    Policy,
    Reduction,
    Tolerance,
    Tolerances,
    for_dtype,
    tolerances_of,
)

if TYPE_CHECKING:
    from kernelmark.verify.conduct import Settings
    from kernelmark.verify.guards import Guard, InputGuard, OwnedOutputs, Renewed, differing
    from kernelmark.verify.memory import apart_from, poison, untouched, unwritten
    from kernelmark.verify.other_values import StaleGuard, fingerprint
    from kernelmark.verify.structure import detached_copy
    from kernelmark.verify.verdict import Verdict, check_outputs, require_answer, run_controls, vacuous

__all__ = [
    "Custom",
    "Declaration",
    "Elementwise",
    "Exact",
    "Form",
    "Guard",
    "InputGuard",
    "Noncomparable",
    "Normalised",
    "OwnedOutputs",
    "Partial",
    "Policy",
    "Reduction",
    "ReferenceInfeasible",
    "Renewed",
    "Settings",
    "StaleGuard",
    "Tolerance",
    "Tolerances",
    "Unestablished",
    "Verdict",
    "apart_from",
    "check_outputs",
    "detached_copy",
    "differing",
    "fingerprint",
    "for_dtype",
    "poison",
    "require_answer",
    "require_declaration",
    "require_reference",
    "run_controls",
    "tolerances_of",
    "untouched",
    "unwritten",
    "vacuous",
]

__getattr__, __dir__ = lazy(__name__)
