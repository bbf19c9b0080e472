"""Options are checked when they are made."""

from __future__ import annotations

import pytest

from kernelmark.errors import UsageError
from kernelmark.records import Cache
from kernelmark.timing import Budget, TimingOptions


def test_the_default_is_cold_without_copies() -> None:
    assert TimingOptions() == TimingOptions(budget=Budget(), cache=Cache.COLD, count_copies=False)


def test_text_becomes_a_cache_state() -> None:
    assert TimingOptions(cache="warm").cache is Cache.WARM


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cache": "hot"}, "cache='hot' is unknown: give 'cold' or 'warm'"),
        ({"count_copies": 1}, "count_copies=1: give True or False"),
        ({"budget": 100}, "budget=100: give a kernelmark.timing.Budget"),
    ],
)
def test_what_is_no_option_is_refused(wrong: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TimingOptions(**wrong)
