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


def rounds(result: dict, values: list[float]) -> dict:
    return changed(changed(result, "round_samples.sort", values), "impls.sort", sum(values) / len(values))


def test_one_round_each_makes_no_statement_about_a_difference(result: dict) -> None:
    found = compare_results(result, changed(result, "impls.sort", result["impls"]["sort"] / 3))["sort"]
    assert (found["low"], found["high"], found["verdict"]) == (None, None, "undecided")


def test_several_rounds_give_an_interval_and_a_verdict(result: dict) -> None:
    slow, fast, wild = [100.0, 101, 99, 100], [50.0, 50.5, 49.5, 50], [30.0, 190, 60, 120]
    faster = compare_results(rounds(result, slow), rounds(result, fast))["sort"]
    assert faster["low"] < 2 < faster["high"]
    assert faster["verdict"] == "faster"
    assert compare_results(rounds(result, fast), rounds(result, slow))["sort"]["verdict"] == "slower"
    assert compare_results(rounds(result, slow), rounds(result, wild))["sort"]["verdict"] == "undecided"
