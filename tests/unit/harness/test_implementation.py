"""What an implementation may be: errors of use are found when it is made."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelmark.errors import UsageError
from kernelmark.harness import Implementation, Unavailable
from kernelmark.harness.implementation import as_implementation
from kernelmark.verify import Guard, Renewed


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"run": 3}, "run must be callable"),
        ({"args": torch.zeros(2)}, r"must be a tuple or None.*args=\(x,\)"),
        ({"reset": 3}, "reset must be callable"),
        ({"noncomparable_reason": " "}, "must say why"),
        ({"owned_outputs": [torch.zeros(1)]}, "must be a tuple of tensors"),
    ],
)
def test_an_argument_that_no_run_could_use_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Implementation(**{"run": print, **given})


def test_a_callable_is_an_implementation_and_nothing_else_is() -> None:
    assert as_implementation("a", print).run is print
    gone = Unavailable("no such library")
    assert as_implementation("a", gone) is gone
    with pytest.raises(UsageError, match="'a' must be a callable"):
        as_implementation("a", 3)
    with pytest.raises(UsageError, match="needs a reason"):
        Unavailable("")


def test_a_guard_says_whether_each_call_gets_other_values() -> None:
    renewed = Renewed((1,), lambda: (2,))
    assert Implementation(print, (1,), list, guards=(renewed,)).renewed
    assert not Implementation(print, guards=(Guard(),)).renewed
