"""Conditions on the target are decided before a module is there, conditions on the module when it is."""

from __future__ import annotations

import pytest

from torchsched.descriptors.conditions import parse_condition
from torchsched.targets import Feature, Target

SERIAL = Target("x86_64", frozenset({Feature.AVX2}))
PARALLEL = Target("aarch64", frozenset({Feature.NEON}), threads=2, openmp="libomp.so")


@pytest.mark.parametrize(
    ("text", "serial", "parallel"),
    [
        ("parallel", False, True),
        ("not parallel", True, False),
        ("avx2", True, False),
        ("not avx2", False, True),
        ("avx512", False, False),
        ("x86_64", True, False),
        ("not aarch64", True, False),
        ("uses tm_tensor", True, True),
    ],
)
def test_a_condition_holds_for_the_targets_it_names(text: str, serial: bool, parallel: bool) -> None:
    condition = parse_condition(text)
    assert condition.allows(SERIAL) is serial
    assert condition.allows(PARALLEL) is parallel


def test_threads_without_a_runtime_are_not_parallel() -> None:
    assert not parse_condition("parallel").allows(Target("x86_64", threads=8))


def test_a_condition_on_the_module_asks_for_its_dialects() -> None:
    uses, uses_not = parse_condition("uses tm_tensor"), parse_condition("not uses tm_tensor")
    module = frozenset({"func", "tm_tensor"})
    assert (uses.holds(module), uses_not.holds(module)) == (True, False)
    assert (uses.holds(frozenset({"func"})), uses_not.holds(frozenset({"func"}))) == (False, True)
    assert parse_condition("parallel").holds(frozenset())


@pytest.mark.parametrize("text", ["", "not", "not not parallel", "uses", "uses a b", "uses TM", "a b"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no condition; .*conditions: parallel, avx2"):
        parse_condition(text)


def test_a_near_name_is_told() -> None:
    with pytest.raises(ValueError, match="did you mean 'parallel'"):
        parse_condition("paralel")
