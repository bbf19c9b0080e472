"""The workload, op and case that the tests of the engine share: twice its input, and what a test puts in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelmark.harness import Case, Runner
from kernelmark.verify import Exact


class Scripted:
    """A workload whose parts a test chooses."""

    def __init__(self, declaration: Any = None, reference: Callable[..., Any] | None = None) -> None:
        self.declaration = declaration or Exact()
        self.reference = reference
        self.drawn = 0

    def gen_inputs(self) -> tuple[torch.Tensor, ...]:
        self.drawn += 1
        return (torch.randn(16, 8),)

    def verification(self) -> Any:
        return self.declaration


class TwiceOp:
    backend = "torch"

    def __call__(self, x: torch.Tensor) -> Any:
        return x * 2

    def eval_roofline(self) -> tuple[int, int, str]:
        return 128, 1024, "float32"


def make_case(declaration: Any = None, reference: Any = lambda x: x * 2, **options: Any) -> Case:
    workload = Scripted(declaration, reference)
    return Case(
        "TwiceOp-test", lambda: workload, op="TwiceOp", op_class=TwiceOp, library_name="tileops", **options
    )


def compare(implementations: Any = None, **options: Any) -> Any:
    return Runner(TwiceOp(), make_case(**options)).compare(implementations)
