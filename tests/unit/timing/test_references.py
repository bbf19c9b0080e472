"""Replaced functions are found out."""

from __future__ import annotations

import types

import pytest

from kernelmark.errors import TimingError
from kernelmark.timing.references import capture, verify


@pytest.fixture
def module() -> types.ModuleType:
    made = types.ModuleType("clocks")
    made.now = lambda: 1
    made.wait = lambda: None
    return made


def test_what_is_as_it_was_passes(module: types.ModuleType) -> None:
    verify(capture(module, "now", "wait"))


def test_every_replaced_name_is_in_the_message(module: types.ModuleType) -> None:
    taken = capture(module, "now", "wait")
    module.now = lambda: 2
    del module.wait
    with pytest.raises(TimingError, match=r"clocks\.now is now <function.*clocks\.wait is now 'gone'"):
        verify(taken)


def test_a_method_is_named_with_its_class() -> None:
    (taken,) = capture(types.SimpleNamespace, "__init__")
    assert str(taken) == "types.SimpleNamespace.__init__"
