"""The baseline that torch's own compiler makes, really compiled."""

from __future__ import annotations

from typing import Any

import torch

from kernelmark.harness.baselines import Compiled, compiled_by_inductor
from kernelmark.harness.implementation import Unavailable

X = torch.randn(8, 8)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def test_it_is_compiled_before_it_is_timed_and_tells_of_compiling_again() -> None:
    found = compiled_by_inductor(double, lambda f: f(X), dynamic=False)
    assert isinstance(found, Compiled)
    assert torch.equal(found.function(X), double(X))
    assert found.recompiled() == 0
    found.function(torch.randn(3, 5))
    assert found.recompiled() == 1


def test_what_cannot_be_compiled_or_called_says_why() -> None:
    def broken(x: torch.Tensor) -> Any:
        raise ValueError("not on Sundays\nand more")

    found = compiled_by_inductor(broken, lambda f: f(X))
    assert isinstance(found, Unavailable)
    assert "not on Sundays" in found.reason
    assert "\n" not in found.reason


def test_one_whose_answer_is_not_that_of_the_function_is_none() -> None:
    found = compiled_by_inductor(double, lambda f: f(X), judge=lambda answer: "is off\nby one")
    assert found == Unavailable("its answer is not eager's: is off by one")
