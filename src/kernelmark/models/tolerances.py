"""How far a compiled model may lie from PyTorch's answer, and how that is written.

The rule is :class:`kernelmark.verify.Policy`'s own for a whole output, of the type that the model computes in: an
output in another float type is no more exact than that.
"""

from __future__ import annotations

from kernelmark.verify import Elementwise, Normalised, Policy, Tolerance, Tolerances
from torchsched.elements import Element

__all__ = ["figure", "policy_for"]


def policy_for(asked: Tolerances, element: Element) -> Policy:
    """Give what decides the rule of each output of a model that computes in ``element``."""
    rule = Policy().for_dtype(element.torch).rule
    return Policy(
        asked=asked, file=Tolerances(rule=rule, source=f"the whole output, by the model's type {element}")
    )


def figure(rule: Tolerance) -> str:
    """Write the rule as the line ``Tolerance: ...`` has it: its one figure, or both of them."""
    if isinstance(rule, Elementwise):
        return f"{rule.rtol:g}" if rule.atol == rule.rtol else f"atol={rule.atol:g} rtol={rule.rtol:g}"
    assert isinstance(rule, Normalised)
    return f"{rule.rtol:g}"
