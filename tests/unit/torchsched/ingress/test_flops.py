"""Counts of operations are arithmetic and nothing else."""

from __future__ import annotations

import pytest

from kernelmark.errors import UsageError
from torchsched.ingress.flops import parse_gflops


@pytest.mark.spec("L5")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(1024 * 1024 * 1024 * 2) / 1e9", 2.147483648),
        ("2.5", 2.5),
        (3, 3.0),
        ("2 * 64 ** 3 / 1e9", 0.000524288),
    ],
)
def test_arithmetic_is_evaluated(text: str | float, value: float) -> None:
    assert parse_gflops(text) == value


@pytest.mark.spec("L5")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("__import__('os').system('true')", "is not in the language"),
        ("open('x')", "no function 'open'"),
        ("M * N", "'M' has no value"),
        ("1 / 0", "division by zero"),
        ("9 ** 9 ** 9", "exponent"),
        ("0", "give the operations of one call in billions"),
        ("-1", "give the operations"),
        ("'text'", "give the operations"),
        ("", "empty"),
    ],
)
def test_what_is_no_count_is_refused(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_gflops(text)
