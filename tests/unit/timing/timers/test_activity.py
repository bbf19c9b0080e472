"""Attribution: work belongs to the call whose id it carries, and a recording must account for all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import (
    EmptyIterationError,
    LossCounterUnprovedError,
    OffThreadLaunchError,
    OnlyCopiesError,
    TimingError,
    UnattributedActivityError,
)
from kernelmark.timing.timers.activity import (
    PREPARE_ID,
    Activity,
    Recording,
    attribute,
    busy_ns,
    iteration_id,
)


def kernel(start: int, end: int, correlation: int, name: str = "k") -> Activity:
    return Activity("kernel", name, start, end, correlation)


def copy(start: int, end: int, correlation: int, direction: str = "DtoD") -> Activity:
    return Activity("copy", direction, start, end, correlation)


def recording(
    *activities: Activity, calls: list[list[int]], prepare: tuple[int, ...] = (), **other: object
) -> Recording:
    externals = {c: iteration_id(i) for i, ids in enumerate(calls) for c in ids} | dict.fromkeys(
        prepare, PREPARE_ID
    )
    return Recording(len(calls), activities, externals, **other)  # type: ignore[arg-type]


@pytest.mark.spec("T31")
def test_work_belongs_to_the_call_whose_id_it_carries_even_if_times_overlap() -> None:
    found = attribute(
        recording(kernel(0, 100, 1), kernel(50, 90, 2), kernel(95, 110, 1), calls=[[1], [2]]),
        count_copies=False,
    )
    assert found.device_busy_ns == (110, 40)
    assert found.latency_ns == (110, 40)
    assert found.n_kernels == (2, 1)


@pytest.mark.spec("T31")
def test_busy_counts_overlap_once_and_latency_spans_the_gaps() -> None:
    found = attribute(
        recording(kernel(0, 10, 1), kernel(5, 20, 2), kernel(50, 60, 3), calls=[[1, 2, 3]]),
        count_copies=False,
    )
    assert found.device_busy_ns == (30,)
    assert found.latency_ns == (60,)


@pytest.mark.spec("T29")
def test_what_reset_and_flush_launch_is_in_no_reading() -> None:
    found = attribute(
        recording(
            kernel(0, 1000, 9), copy(2000, 3000, 8), kernel(3100, 3110, 1), calls=[[1]], prepare=(8, 9)
        ),
        count_copies=True,
    )
    assert found.device_busy_ns == found.latency_ns == (10,)
    assert found.n_copies == (0,)


@pytest.mark.spec("T30")
def test_a_copy_within_the_device_counts_only_where_the_case_says_so() -> None:
    whole = recording(kernel(0, 10, 1), copy(20, 50, 2), kernel(60, 70, 3), calls=[[1, 2, 3]])
    without, with_copies = attribute(whole, count_copies=False), attribute(whole, count_copies=True)
    assert without.device_busy_ns == (20,)
    assert without.uncounted_copy_ns == (30,)
    assert with_copies.device_busy_ns == (50,)
    assert with_copies.uncounted_copy_ns == (0,)
    assert without.n_copies == with_copies.n_copies == (1,)


@pytest.mark.spec("T30")
def test_a_call_made_only_of_copies_is_refused_with_what_to_set() -> None:
    only = recording(copy(0, 30, 1), calls=[[1]])
    with pytest.raises(OnlyCopiesError, match="count_copies=True"):
        attribute(only, count_copies=False)
    assert attribute(only, count_copies=True).device_busy_ns == (30,)


def test_a_copy_from_the_host_and_a_memset_are_work() -> None:
    found = attribute(
        recording(copy(0, 10, 1, "HtoD"), Activity("memset", "memset", 20, 25, 2), calls=[[1, 2]]),
        count_copies=False,
    )
    assert found.device_busy_ns == (15,)
    assert found.n_memsets == (1,)
    assert found.uncounted_copy_ns == (0,)


@pytest.mark.spec("T31")
def test_a_varying_number_of_kernels_is_told_sample_by_sample() -> None:
    found = attribute(
        recording(kernel(0, 1, 1), kernel(2, 3, 2), kernel(5, 6, 3), calls=[[1, 2], [3]]), count_copies=False
    )
    assert found.n_kernels == (2, 1)


@pytest.mark.spec("T32", "X6")
def test_a_call_without_work_and_work_without_a_call_are_two_errors() -> None:
    with pytest.raises(EmptyIterationError, match="call 2 of 2"):
        attribute(recording(kernel(0, 1, 1), calls=[[1], []]), count_copies=False)
    with pytest.raises(UnattributedActivityError, match=r"1 pieces of device work \(stray\)"):
        attribute(recording(kernel(0, 1, 1), kernel(5, 6, 7, "stray"), calls=[[1]]), count_copies=False)


@pytest.mark.spec("T32")
def test_nobody_is_blamed_where_the_loss_counter_is_unproved() -> None:
    with pytest.raises(LossCounterUnprovedError, match="could not be shown to work"):
        attribute(recording(kernel(0, 1, 1), calls=[[1], []], loss_counter_proved=False), count_copies=False)


@pytest.mark.spec("T35")
def test_work_launched_by_another_thread_is_named_with_the_way_out() -> None:
    lost = recording(
        kernel(0, 1, 1),
        kernel(3, 9, 5, "backward_kernel"),
        calls=[[1]],
        threads={1: 10, 5: 11},
        main_thread=10,
    )
    with pytest.raises(OffThreadLaunchError, match=r"backward_kernel.*Tensor\.backward"):
        attribute(lost, count_copies=False)


def test_a_record_that_ends_before_it_starts_is_damage() -> None:
    with pytest.raises(TimingError, match="damaged"):
        attribute(recording(kernel(10, 5, 1), calls=[[1]]), count_copies=False)


def test_kernel_names_carry_runs_per_call_and_share() -> None:
    found = attribute(
        recording(
            kernel(0, 30, 1, "a"),
            kernel(30, 40, 1, "b"),
            kernel(50, 80, 2, "a"),
            kernel(80, 90, 2, "b"),
            calls=[[1], [2]],
        ),
        count_copies=False,
    )
    assert [(k.name, k.per_call, k.share) for k in found.kernels] == [("a", 1.0, 0.75), ("b", 1.0, 0.25)]


INTERVALS = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 50)).map(lambda p: (p[0], p[0] + p[1])), max_size=12
)


@given(INTERVALS)
def test_the_union_of_intervals_counts_each_nanosecond_once(intervals: list[tuple[int, int]]) -> None:
    covered = {t for start, end in intervals for t in range(start, end)}
    assert busy_ns(intervals) == len(covered)


@given(INTERVALS.filter(bool))
def test_busy_is_never_longer_than_latency(intervals: list[tuple[int, int]]) -> None:
    found = attribute(recording(*(kernel(a, b, 1) for a, b in intervals), calls=[[1]]), count_copies=False)
    assert found.device_busy_ns[0] <= found.latency_ns[0]
