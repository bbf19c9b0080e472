"""What can be handed to another process, and what is refused with a reason."""

from __future__ import annotations

import operator
import threading
from functools import partial
from pathlib import Path
from types import FunctionType

import pytest
import torch

from kernelmark.timing.sending import receive, send, why_unsendable


def there_and_back(thing: object, folder: Path) -> object:
    assert send(thing, folder / "x") == ""
    return receive(folder / "x")


@pytest.mark.spec("X7")
def test_functions_come_back_as_themselves_with_their_arguments(tmp_path: Path) -> None:
    back = there_and_back(partial(operator.add, 2), tmp_path)
    assert back.func is operator.add  # type: ignore[attr-defined]
    assert back(3) == 5  # type: ignore[operator]


def test_tensors_that_are_one_object_or_share_storage_still_do(tmp_path: Path) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    one, same, view, wide = there_and_back((x, x, x[1:], x[:1].expand(5, 4)), tmp_path)  # type: ignore[misc]
    assert one is same
    assert torch.equal(view, x[1:])
    assert wide.stride() == (0, 1)
    one.zero_()
    assert not view.any()
    assert not wide.any()


def of_the_script(module: str) -> FunctionType:
    made = FunctionType((lambda: None).__code__, {}, "made")
    made.__module__, made.__qualname__ = module, "made"
    return made


@pytest.mark.parametrize(
    ("thing", "reason"),
    [
        (lambda: None, "lambda"),
        (threading.Lock(), "cannot pickle '_thread.lock' object"),
        (of_the_script("__main__"), "made belongs to the main script"),
        ((1, [partial(of_the_script("__main__"))]), "made belongs to the main script"),
        (type("Mine", (), {"__module__": "__main__"}), "Mine belongs to the main script"),
        (type("Mine", (), {"__module__": "__main__"})(), "Mine belongs to the main script"),
    ],
    ids=["lambda", "lock", "function", "inside", "class", "instance"],
)
def test_what_exists_in_one_process_alone_is_refused_with_the_reason(
    thing: object, reason: str, tmp_path: Path
) -> None:
    assert reason in why_unsendable(thing)
    assert reason in send(thing, tmp_path / "x")
