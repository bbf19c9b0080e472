"""A finding that is not well has a fix, and the gravest one decides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.doctor.finding import Finding, Severity, worst
from kernelmark.errors import UsageError

findings = st.lists(st.builds(Finding, st.just("x"), st.sampled_from(Severity), st.just("y"), st.just("z")))


@pytest.mark.parametrize("severity", [each for each in Severity if each is not Severity.OK])
def test_what_is_not_well_needs_a_fix(severity: Severity) -> None:
    with pytest.raises(UsageError, match=r"'ncu' is a .* without a fix"):
        Finding("ncu", severity, "not there")


def test_what_is_well_needs_none() -> None:
    assert Finding("ncu", Severity.OK, "there").fix == ""


@given(findings)
def test_the_worst_is_there_and_nothing_is_graver(found: list[Finding]) -> None:
    order = [Severity.OK, Severity.NOTE, Severity.WARNING, Severity.MISSING]
    gravest = worst(found)
    assert gravest is Severity.OK or gravest in {each.severity for each in found}
    assert all(order.index(each.severity) <= order.index(gravest) for each in found)
