"""How far a compiled model may lie from PyTorch's answer: one figure an element type.

Whole graphs are compared, so that no length of a reduction is known; the error is taken against the size of the
whole output (:class:`kernelmark.verify.Normalised`) unless a user says otherwise. Integer and boolean outputs are
compared exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernelmark.errors import UsageError
from kernelmark.verify import Elementwise, Normalised, Tolerance
from torchsched.elements import Element

__all__ = ["TOLERANCES", "Asked", "figure"]

TOLERANCES: dict[Element, float] = {
    Element.F64: 1e-9,
    Element.F32: 1e-4,
    Element.F16: 4e-3,
    Element.BF16: 2e-2,
}
"""Largest root mean square error over that of the answer. A few units of the type's precision for types whose
intermediate results are rounded (f16 2⁻¹¹, bf16 2⁻⁸); for f32 and f64 what sums in another order and vectorised
functions of four units may add up to over a deep net, hundreds of times below what a wrong element makes."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user says of the tolerance; nothing is the type's own."""

    tolerance: float | None = None
    """The figure in place of the type's."""
    atol: float | None = None
    """With ``rtol``: each element is compared by itself, in place of the output as a whole."""
    rtol: float | None = None

    def __post_init__(self) -> None:
        for name in ("tolerance", "atol", "rtol"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise UsageError(f"--{name} {value}: give a number of at least 0")
        if self.tolerance is not None and (self.atol is not None or self.rtol is not None):
            raise UsageError(
                "--tolerance excludes --atol and --rtol: it is taken against the output as a whole"
            )
        if self.tolerance == 0:
            raise UsageError(
                "--tolerance 0: give a number above 0; for an exact answer write --atol 0 --rtol 0"
            )

    def for_element(self, element: Element) -> Tolerance:
        """Give the rule for outputs of a model in ``element``."""
        if self.atol is not None or self.rtol is not None:
            return Elementwise(atol=self.atol or 0.0, rtol=self.rtol or 0.0)
        return Normalised(TOLERANCES[element] if self.tolerance is None else self.tolerance)


def figure(rule: Tolerance) -> str:
    """Write the rule as the line ``Tolerance: ...`` has it: its one figure, or both of them."""
    if isinstance(rule, Elementwise):
        return f"{rule.rtol:g}" if rule.atol == rule.rtol else f"atol={rule.atol:g} rtol={rule.rtol:g}"
    assert isinstance(rule, Normalised)
    return f"{rule.rtol:g}"
