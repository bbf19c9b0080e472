"""A case's own reference, compiled by torch."""

from __future__ import annotations

import torch

from kernelmark import Case, Implementation, Unavailable
from tileops.ops.base import cxx_compiler, with_own_code

__all__ = ["compiled_reference"]


def compiled_reference(case: Case) -> Implementation | Unavailable:
    """Compile ``case.reference`` with inductor; unavailable on a CPU without a C++ compiler."""
    from kernelmark.harness import current_session

    if current_session().device.kind == "cpu" and cxx_compiler() is None:
        return Unavailable("torch.compile needs a C++ compiler on the CPU, and there is none (install g++)")
    reference = case.reference
    if reference is None:
        return Unavailable("the case has no reference to compile")
    return Implementation(
        run=torch.compile(with_own_code(reference), dynamic=False), backend="torch inductor"
    )
