"""Counts from budgets."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import UsageError
from kernelmark.timing.budget import Budget, Cost, corrected, counts, shared_counts, spread

MS = 1_000_000
DEFAULT = Budget()


def test_the_defaults_are_those_of_the_protocol() -> None:
    assert dataclasses.asdict(DEFAULT) == {
        "warmup_ms": 25.0,
        "sample_ms": 100.0,
        "min_count": 10,
        "max_count": 200,
        "blocks": 10,
        "prepare_ms": 500.0,
        "warmup_count": None,
    }


@pytest.mark.spec("T28")
@pytest.mark.parametrize(
    ("estimate_ns", "warmup", "samples", "blocks"),
    [
        (1_000, 200, 200, 10),  # more would fit: the most there may be
        (1 * MS, 25, 100, 10),
        (2.5 * MS, 10, 40, 10),
        (9 * MS, 10, 11, 5),  # eleven fit: one pass has one more
        (50 * MS, 10, 10, 5),  # two fit: the fewest there may be, one in each pass of five blocks
    ],
)
def test_counts_follow_the_budget_between_the_bounds(estimate_ns, warmup, samples, blocks) -> None:
    found = counts(estimate_ns, 0, DEFAULT)
    assert (found.warmup, found.samples, found.blocks) == (warmup, samples, blocks)


def test_an_estimate_of_nothing_does_not_divide() -> None:
    found = counts(0, 0, DEFAULT)
    assert (found.warmup, found.samples) == (200, 200)
    assert found.notes == ()


def test_one_block_is_the_plain_protocol_of_two_passes() -> None:
    found = counts(1 * MS, 0, Budget(blocks=1))
    assert (found.passes, found.samples) == (((50, 50),), 100)


def test_a_costly_preparation_lowers_the_counts_and_says_so() -> None:
    found = counts(100_000, 5 * MS, DEFAULT)
    assert (found.warmup, found.samples) == (25, 100)
    assert found.notes == (
        "100 samples rather than 200: reset and flush take 5.00 ms before each, and may take 500 ms in all",
    )


def test_no_preparation_lowers_the_counts_below_the_fewest() -> None:
    found = counts(100_000, 900 * MS, DEFAULT)
    assert (found.warmup, found.samples, found.blocks) == (10, 10, 5)


def test_a_call_that_overruns_the_budget_says_so() -> None:
    assert counts(30 * MS, 0, DEFAULT).notes == (
        "a call takes 30.0 ms, so that 10 samples, the fewest allowed, exceed the budget of 100 ms",
        "5 blocks rather than 10: too few samples fit the budget",
    )


def test_no_warm_up_asked_for_is_no_warm_up() -> None:
    assert counts(1 * MS, 0, Budget(warmup_ms=0)).warmup == 0


@pytest.mark.parametrize("count", [0, 3])
def test_an_exact_warm_up_is_what_it_says_whatever_a_call_takes(count: int) -> None:
    for estimate_ns in (1.0, 900.0 * MS):
        assert counts(estimate_ns, 900 * MS, Budget(warmup_count=count)).warmup == count


@pytest.mark.parametrize("count", [-1, 1.5, True])
def test_a_warm_up_that_is_no_count_is_refused(count: object) -> None:
    with pytest.raises(UsageError, match="warmup_count"):
        Budget(warmup_count=count)  # type: ignore[arg-type]


@pytest.mark.parametrize(("fewest", "samples"), [(1, 2), (2, 2), (7, 7), (11, 11)])
def test_the_fewest_allowed_is_what_is_taken_but_for_one_which_no_block_can_have(
    fewest: int, samples: int
) -> None:
    assert counts(1000 * MS, 0, Budget(min_count=fewest)).samples == samples


def test_implementations_of_one_comparison_share_the_smallest_number_of_blocks() -> None:
    found = shared_counts({"fast": Cost(10_000), "slow": Cost(80 * MS)}, DEFAULT)
    assert {each.blocks for each in found.values()} == {5}
    assert found["fast"].passes == ((20, 20),) * 5
    assert found["slow"].passes == ((1, 1),) * 5
    assert found["fast"].notes == ("5 blocks rather than 10: too few samples fit the budget",)


BUDGETS = st.builds(
    lambda fewest, more, **rest: Budget(min_count=fewest, max_count=max(2, fewest + more), **rest),
    fewest=st.integers(1, 60),
    more=st.integers(0, 300),
    blocks=st.integers(1, 25),
    warmup_ms=st.floats(0, 100),
    sample_ms=st.floats(0.1, 1000),
    prepare_ms=st.floats(1, 5000),
)
COSTS = st.builds(Cost, st.floats(0, 1e10), st.floats(0, 1e9))


@given(st.dictionaries(st.sampled_from("abc"), COSTS, min_size=1), BUDGETS)
def test_counts_keep_the_bounds(costs: dict[str, Cost], budget: Budget) -> None:
    found = shared_counts(costs, budget)
    assert len({each.blocks for each in found.values()}) == 1
    for each in found.values():
        assert 1 <= each.blocks <= budget.blocks
        assert min(min(block) for block in each.passes) >= 1
        assert budget.min_count <= each.samples <= budget.max_count
        assert each.warmup == 0 or budget.min_count <= each.warmup <= budget.max_count


@given(st.floats(1, 1e10), st.floats(0, 1e9))
def test_sampling_takes_at_most_a_third_more_than_its_budget_or_the_fewest(
    estimate_ns: float, prepare_ns: float
) -> None:
    samples = counts(estimate_ns, prepare_ns, DEFAULT).samples
    if samples > DEFAULT.min_count:
        assert samples * estimate_ns <= 100 * MS * 4 / 3
        assert samples * prepare_ns <= 2000 * MS * 4 / 3


@pytest.mark.parametrize("wanted", [2, 3, 7, 21, 50, 101, 200])
def test_the_number_of_samples_that_is_asked_for_is_the_number_taken(wanted: int) -> None:
    found = counts(1_000, 0, Budget(min_count=wanted, max_count=wanted))
    assert found.samples == wanted
    assert found.blocks == min(10, wanted // 2)


@given(st.integers(1, 30).flatmap(lambda blocks: st.tuples(st.integers(2 * blocks, 400), st.just(blocks))))
def test_passes_of_a_block_stay_mirrored_but_for_one_sample_at_most(given: tuple[int, int]) -> None:
    samples, blocks = given
    passes = spread(samples, blocks)
    assert len(passes) == blocks
    assert sum(map(sum, passes)) == samples
    assert [first - second for first, second in passes] == [samples % 2, *[0] * (blocks - 1)]
    assert max(map(min, passes)) - min(map(min, passes)) <= 1


def test_a_calibration_that_was_held_up_is_corrected_after_the_first_block() -> None:
    costs = {"ours": Cost(24 * MS), "torch": Cost(30_000)}
    planned = shared_counts(costs, DEFAULT)
    assert planned["ours"].samples == 10
    found = corrected(planned, costs, DEFAULT, shortest_ns={"ours": 35_000, "torch": 31_000})
    assert (found["ours"].samples, found["torch"].samples) == (200, 200)
    assert {each.blocks for each in found.values()} == {10}
    assert found["ours"].passes[0] == planned["ours"].passes[0]
    assert found["ours"].notes == (
        "200 samples in 10 blocks, counted anew after the first block: the calibration read 24.0 ms, and a sample"
        " 35.0 µs",
    )
    assert found["torch"].notes == ()


def test_a_calibration_that_was_right_is_left_alone() -> None:
    costs = {"ours": Cost(60 * MS), "torch": Cost(1 * MS)}
    planned = shared_counts(costs, DEFAULT)
    assert corrected(planned, costs, DEFAULT, shortest_ns={"ours": 40 * MS, "torch": 1 * MS}) == planned


@given(st.dictionaries(st.sampled_from("abc"), COSTS, min_size=1), BUDGETS, st.floats(1, 1e10))
def test_a_correction_keeps_what_has_run_and_never_takes_fewer_blocks(
    costs: dict[str, Cost], budget: Budget, shortest: float
) -> None:
    planned = shared_counts(costs, budget)
    found = corrected(planned, costs, budget, shortest_ns=dict.fromkeys(costs, shortest))
    assert len({each.blocks for each in found.values()}) == 1
    for name, each in found.items():
        assert each.passes[0] == planned[name].passes[0]
        assert each.blocks >= planned[name].blocks
        assert planned[name].samples <= each.samples <= budget.max_count


@given(st.floats(1, 1e10), st.floats(1, 1e10), st.floats(0, 1e9))
def test_a_slower_call_never_gets_more_samples(one: float, other: float, prepare_ns: float) -> None:
    fast, slow = sorted((one, other))
    assert counts(slow, prepare_ns, DEFAULT).samples <= counts(fast, prepare_ns, DEFAULT).samples


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"warmup_ms": -1}, "warmup_ms=-1"),
        ({"warmup_ms": float("nan")}, "warmup_ms=nan"),
        ({"sample_ms": 0}, "sample_ms=0"),
        ({"sample_ms": "100"}, "sample_ms='100'"),
        ({"prepare_ms": float("inf")}, "prepare_ms=inf"),
        ({"min_count": 0}, "min_count=0"),
        ({"max_count": 2.5}, "max_count=2.5"),
        ({"blocks": True}, "blocks=True"),
        ({"min_count": 300}, "min_count=300 is above max_count=200"),
    ],
)
def test_a_budget_that_no_run_can_keep_is_refused(wrong: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Budget(**wrong)
