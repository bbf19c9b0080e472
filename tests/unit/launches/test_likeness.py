"""Results that are not alike are not compared, and the refusal says why not."""

from __future__ import annotations

import copy

import pytest

from kernelmark.errors import RecordError, UsageError
from kernelmark.launches import LIKENESS, bench, compare_results


@pytest.fixture(scope="module")
def result() -> dict:
    numbers = list(range(500))
    return bench({"sort": lambda: sorted(numbers)}, cooldown_s=0, warmup=0, repeat=1)


def changed(result: dict, key: str, value: object) -> dict:
    result = copy.deepcopy(result)
    *path, last = key.split(".")
    place = result
    for part in path:
        place = place[part]
    place[last] = value
    return result


@pytest.mark.spec("X10")
@pytest.mark.parametrize("key", LIKENESS)
def test_each_key_by_itself_refuses_the_comparison_and_is_named_with_both_values(
    result: dict, key: str
) -> None:
    other = changed(result, key, "something else")
    with pytest.raises(RecordError, match="not alike") as caught:
        compare_results(result, other)
    assert f"{key} is " in str(caught.value)
    assert "'something else'" in str(caught.value)
    assert compare_results(result, other, ignore=[key])


@pytest.mark.spec("X10")
def test_alike_results_give_before_over_after(result: dict) -> None:
    faster = changed(result, "impls.sort", result["impls"]["sort"] / 2)
    assert compare_results(result, faster)["sort"]["ratio"] == pytest.approx(2)


def test_more_rounds_are_only_surer(result: dict) -> None:
    assert compare_results(result, changed(result, "benchmark_protocol.rounds", 7))


def test_results_without_a_common_implementation_are_refused(result: dict) -> None:
    with pytest.raises(RecordError, match="share no implementation: sort and other"):
        compare_results(result, changed(result, "impls", {"other": 1.0}))


def test_only_listed_keys_can_be_ignored(result: dict) -> None:
    with pytest.raises(UsageError, match=r"ignore=\['speed'\]"):
        compare_results(result, result, ignore=["speed"])
