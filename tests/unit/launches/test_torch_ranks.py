"""Ranks that are processes, connected by torch: they measure together, and none waits for one that is gone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kernelmark.device import CpuDevice
from tests.forked import Forked

PROGRAM = Path(__file__).with_name("rank_program.py")
LIMIT_S = 120
"""No scenario takes this long: one whose ranks wait for each other without end does."""


@contextmanager
def started(folder: Path, scenario: str, size: int) -> Iterator[list[Forked]]:
    arguments = [str(size), str(folder / f"{scenario}.rendezvous"), scenario]
    ranks = [Forked([str(PROGRAM), str(rank), *arguments]) for rank in range(size)]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def outcomes(rank: Forked) -> list[dict[str, Any]]:
    printed, complaints = rank.communicate(timeout=LIMIT_S)
    assert rank.returncode == 0, complaints
    return [json.loads(line) for line in printed.splitlines()]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """What two ranks tell of the scenarios they go through with one context, by scenario and rank."""
    with started(tmp_path_factory.mktemp("two"), "one_after_the_other", 2) as ranks:
        told = [outcomes(rank) for rank in ranks]
    return [list(each) for each in zip(*told, strict=True)]


def is_quick_as_often_as_not(samples: list[float]) -> bool:
    """Whether a third of the samples at least are short, on a machine that others keep busy too."""
    return sum(sample < 20_000 for sample in samples) >= len(samples) / 3


@pytest.mark.spec("X14")
def test_processes_that_are_slow_in_turn_are_slow_in_every_sample(two) -> None:
    first, second = (each["result"] for each in two[0])
    ranks = first["ranks"]["crossing"]
    assert first["impls"]["crossing"] >= 20_000
    assert all(is_quick_as_often_as_not(samples) for samples in ranks["samples"][0])  # neither alone shows it
    assert len(ranks["samples"][0]) == 2
    assert {len(each) for each in ranks["samples"][0]} == {30}
    assert (first["impls"], first["ranks"]) == (second["impls"], second["ranks"])
    assert first["benchmark_protocol"]["gpu_sleep"].startswith("skipped")
    assert [each["benchmark_protocol"]["rank"] for each in (first, second)] == [0, 1]


@pytest.mark.spec("X15")
def test_a_builder_that_fails_in_one_process_is_an_error_in_both(two) -> None:
    for each in two[1]:
        assert each["result"]["errors"] == {"bad": "rank 1: OSError: no such file"}
        assert list(each["result"]["impls"]) == ["a"]


@pytest.mark.spec("X15")
def test_processes_with_different_lists_time_nothing(two) -> None:
    for each in two[2]:
        assert each["error"] == "DistributedError"
        assert '"funcs": ["b"]' in each["message"]
        assert '"funcs": ["a"]' in each["message"]


@pytest.mark.spec("X15")
def test_a_launch_that_raises_in_one_process_ends_the_other_with_its_reason(two) -> None:
    assert (two[3][1]["error"], two[3][1]["message"]) == ("ValueError", "boom")
    assert two[3][0]["error"] == "DistributedError"
    assert two[3][0]["message"] == "rank 1 left the benchmark: ValueError: boom"


@pytest.mark.spec("X15")
def test_a_bad_value_in_one_process_ends_the_other_with_its_reason(two) -> None:
    assert two[4][1]["error"] == "UsageError"
    assert two[4][0]["message"].startswith("rank 1 left the benchmark: UsageError: rounds=0: ")


@pytest.mark.spec("X7")
def test_after_all_of_this_the_same_ranks_measure_again(two) -> None:
    assert all(each["result"]["impls"]["a"] > 0 for each in two[5])


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """What four ranks tell of their scenarios, by scenario and rank; rank 3 is killed in the last one."""
    with started(tmp_path_factory.mktemp("four"), "four", 4) as ranks:
        told = [outcomes(rank) for rank in ranks[:3]]
        printed, _ = ranks[3].communicate(timeout=LIMIT_S)
        assert ranks[3].returncode == -signal.SIGKILL
    told.append([json.loads(line) for line in printed.splitlines()] + [{}])
    return [list(each) for each in zip(*told, strict=True)]


@pytest.mark.spec("X14")
def test_four_processes_name_the_slowest(four) -> None:
    for each in four[0]:
        assert each["result"]["ranks"]["a"]["slowest_rank"] == 2
        assert each["result"]["impls"] == four[0][0]["result"]["impls"]
        assert each["result"]["impls"]["a"] >= 30_000


@pytest.mark.spec("X14")
def test_of_four_processes_the_slowest_of_each_sample_counts(four) -> None:
    for each in four[1]:
        assert each["result"]["impls"]["crossing"] >= 20_000
        ranks = each["result"]["ranks"]["crossing"]["samples"][0]
        assert all(is_quick_as_often_as_not(samples) for samples in ranks)


@pytest.mark.spec("X15")
def test_a_builder_that_fails_in_one_of_four_processes_is_an_error_in_all(four) -> None:
    for each in four[2]:
        assert each["result"]["errors"] == {"bad": "rank 2: OSError: no such file"}
        assert list(each["result"]["impls"]) == ["a"]


@pytest.mark.spec("X15")
def test_a_rank_that_is_killed_ends_the_others_with_what_all_had_measured(four) -> None:
    for each in four[3][:3]:
        assert each["error"] == "DistributedError"
        assert each["message"].startswith("rank 3 of 4 died: its process has ended (")
        assert list(each["measured"]["impls"]) == ["a"]
        assert each["measured"]["impls"]["a"] >= 2_000
        assert [len(samples) for samples in each["measured"]["samples"]["a"]] == [30]
        assert len(each["measured"]["ranks"]["a"]["median"]) == 4
        assert any(note.startswith("measured by all ranks before: a ") for note in each["notes"])


@pytest.mark.spec("X15")
def test_a_rank_that_dies_or_hangs_ends_the_others_within_the_limit_and_is_named(tmp_path: Path) -> None:
    with (
        started(tmp_path, "dies", 3) as dying,
        started(tmp_path, "hangs", 2) as hanging,
        started(tmp_path, "hangs_while_building", 2) as building,
    ):
        left = [outcomes(dying[rank]) for rank in (0, 2)]
        (hung,), (built) = outcomes(hanging[0]), outcomes(building[0])[0]
        assert dying[1].wait(LIMIT_S) == 9
        assert hanging[1].poll() is None
        assert building[1].poll() is None
    for first, again in left:
        assert first["error"] == again["error"] == "DistributedError"
        assert first["message"].startswith("rank 1 of 3 died: its process has ended (")
        assert "these ranks have lost each other" in again["message"]
    for error in (hung, built):
        assert error["error"] == "DistributedError"
        assert error["message"].startswith(
            "rank 1 of 2 does not answer: it died, hangs, or is busy for longer"
        )
        assert "timeout_s=4" in error["message"]


@pytest.mark.spec("X13", "X14")
def test_one_process_alone_evicts_what_this_cpu_needs(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(PROGRAM),
        "0",
        "1",
        str(tmp_path / "rendezvous"),
        "alone",
    ]  # started afresh
    printed = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout
    told = json.loads(printed)
    assert told["result"]["impls"]["a"] >= 1_000
    assert told["result"]["ranks"]["a"]["slowest_rank"] == 0
    assert told["result"]["benchmark_protocol"]["flush_bytes"] == CpuDevice().flusher().size_bytes


# --- devices that wait for each other ---------------------------------------------------------------


@pytest.mark.spec("X15")
@pytest.mark.parametrize(
    "scenario",
    [
        "device_waits_for_one_that_was_killed",
        "launch_fails_since_its_peer_was_killed",
        "launch_fails_before_its_device_is_parted",
    ],
)
def test_a_host_whose_device_waits_for_a_killed_rank_is_freed_and_names_it(
    tmp_path: Path, scenario: str
) -> None:
    with started(tmp_path, scenario, 2) as ranks:
        first, again = outcomes(ranks[0])
        assert ranks[1].wait(LIMIT_S) == -signal.SIGKILL
    assert first["error"] == again["error"] == "DistributedError"
    assert first["message"].startswith("rank 1 of 2 died: its process has ended (")
    assert list(first["measured"]["impls"]) == ["a"]
    assert "these ranks have lost each other" in again["message"]


@pytest.mark.spec("X15")
def test_a_host_whose_device_waits_for_a_rank_that_raised_is_freed_with_its_reason(tmp_path: Path) -> None:
    with started(tmp_path, "device_waits_for_one_that_raised", 2) as ranks:
        first, second = (outcomes(rank) for rank in ranks)
    assert first[0]["error"] == "DistributedError"
    assert first[0]["message"] == "rank 1 left the benchmark: ValueError: boom"
    assert list(first[0]["measured"]["impls"]) == ["a"]
    assert (second[0]["error"], second[0]["message"]) == ("ValueError", "boom")
    assert any(note.startswith("measured by all ranks before: a ") for note in second[0]["notes"])
    for again in (first[1], second[1]):
        assert "these ranks have lost each other" in again["message"]


@pytest.mark.spec("X15")
def test_a_host_whose_device_waits_for_a_rank_that_hangs_is_freed_at_the_time_limit(tmp_path: Path) -> None:
    with started(tmp_path, "device_waits_for_one_that_hangs", 3) as ranks:
        left = [outcomes(ranks[rank])[0] for rank in (0, 2)]
        assert ranks[1].poll() is None
    for told in left:
        assert told["error"] == "DistributedError"
        assert told["message"].startswith(
            "rank 1 of 3 does not answer: it died, hangs, or is busy for longer"
        )
        assert "the device waited for the others until the time limit" in told["message"]


@pytest.mark.spec("X15")
def test_devices_whose_ranks_are_all_there_are_not_parted_however_long_a_launch_takes(tmp_path: Path) -> None:
    with started(tmp_path, "device_waits_long_for_one_that_comes", 2) as ranks:
        told = [outcomes(rank)[0] for rank in ranks]
    assert all(each["result"]["impls"]["a"] < 1_000_000 for each in told)
    assert max(told[0]["result"]["ranks"]["a"]["samples"][0][0]) > 3_000_000
