"""A checked plan, run on devices whose clocks move only when told; the ranks are threads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmark.device import FakeDevice
from kernelmark.errors import DistributedError, TimingError, UnavailableError, VerificationError
from kernelmark.harness import Unavailable
from kernelmark.launches.measuring import (
    DISTRIBUTED_COUNTS,
    build_references,
    measure_plan,
    report_baseline_error,
    share_errors,
)
from kernelmark.launches.options import LaunchOptions, make_plan
from kernelmark.launches.ranks import Ranks
from kernelmark.records import read_run
from kernelmark.timing.timer import Samples
from kernelmark.timing.timers.host import HostTimer

US = 1_000


@dataclass
class Rank:
    """One rank's device, and a launch of its own speed that counts its calls."""

    device: FakeDevice
    calls: int = 0

    def launch(self, ns) -> Any:
        def run() -> None:
            index = self.calls
            self.calls += 1
            self.device.log.append("launch")
            self.device.clock.advance(ns(index))

        return run


def measure(rank: Rank, funcs: dict, *, timer=None, options: dict | None = None, **rest) -> dict[str, Any]:
    plan = make_plan(funcs, options=LaunchOptions(**{"cooldown_s": 0, **(options or {})}), **rest)
    return measure_plan(plan, rank.device, timer=timer or HostTimer(rank.device.clock))


@pytest.fixture
def here() -> Rank:
    return Rank(FakeDevice())


# --- one rank ---------------------------------------------------------------------------------------


@pytest.mark.spec("X9", "X10")
def test_a_round_is_the_mean_of_its_samples_and_an_implementation_the_mean_of_its_rounds(here: Rank) -> None:
    # one call, five estimated, one warm-up: sample 7 on are those of round 1; the same again for round 2
    speeds = [100] * 7 + [10, 30] + [100] * 7 + [40, 60]
    result = measure(
        here,
        {"a": here.launch(lambda i: speeds[i] * US)},
        options={"warmup": 0, "repeat": 0.25, "rounds": 2},
    )
    assert result["samples"] == {"a": [[10, 30], [40, 60]]}
    assert result["round_samples"] == {"a": [20, 50]}
    assert result["impls"] == {"a": 35}
    assert result["benchmark_protocol"]["counts"]["a"] == {
        "warmup": [1, 1],
        "samples": [2, 2],
        "estimate_us": [100, 100],
    }


@pytest.mark.spec("X8")
def test_builders_run_before_any_launch_and_their_time_is_in_no_reading(here: Rank) -> None:
    def build():
        here.device.log.append("build")
        here.device.clock.advance(10**12)
        return here.launch(lambda _: US)

    result = measure(
        here, {"a": here.launch(lambda _: US)}, references={"b": build}, options={"repeat": 0.01}
    )
    assert here.device.log[0] == "build"
    assert here.device.log.count("build") == 1
    assert result["impls"] == {"a": 1, "b": 1}


@pytest.mark.spec("X8")
def test_a_failed_builder_is_in_the_result_and_on_stderr_and_the_others_have_times(
    here: Rank, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails():
        raise OSError("gone")

    result = measure(
        here, {"a": here.launch(lambda _: US)}, references={"b": fails}, options={"repeat": 0.01}
    )
    assert result["errors"] == {"b": "OSError: gone"}
    assert list(result["impls"]) == ["a"]
    assert capsys.readouterr().err == "BASELINE_ERROR: b: OSError: gone\n"


@pytest.mark.spec("X16")
def test_prepare_runs_before_each_call_of_its_implementation_and_is_in_no_reading(here: Rank) -> None:
    def prepare() -> None:
        here.device.log.append("prepare")
        here.device.clock.advance(70 * US)

    launch, other = here.launch(lambda _: US), lambda: here.device.clock.advance(US)
    result = measure(here, {"a": launch, "b": other}, prepare={"a": prepare}, options={"repeat": 0.3})
    assert result["impls"] == {"a": 1, "b": 1}
    seen = [event for event in here.device.log if event in ("prepare", "launch")]
    assert seen == ["prepare", "launch"] * (len(seen) // 2)


@pytest.mark.spec("X6")
def test_a_round_without_time_is_an_error_and_never_0(here: Rank) -> None:
    with pytest.raises(TimingError, match=r"'a' read 0\.0 µs in one round"):
        measure(here, {"a": lambda: None})


@pytest.mark.spec("X6")
def test_a_timer_that_is_not_to_be_had_is_found_out_before_anything_is_built() -> None:
    def build():
        raise AssertionError("nothing may be built")

    plan = make_plan({"a": build}, references={"b": build}, options=LaunchOptions(timer="event"))
    with pytest.raises(UnavailableError, match="serves accelerators"):
        measure_plan(plan, FakeDevice(kind="cpu"))


@pytest.mark.spec("X10")
def test_the_result_is_json_and_says_how_it_was_measured(here: Rank) -> None:
    options = {"warmup": 1, "cudagraph_rep": 5, "rounds": 2}
    result = measure(here, {"a": here.launch(lambda _: 10**8)}, options=options)
    assert json.loads(json.dumps(result)) == result
    protocol = result["benchmark_protocol"]
    assert result["timer"] == protocol["timer"] == "host"
    assert protocol["budgets_ms"] == {"warmup": 1, "repeat": 1000}
    assert protocol["budgets_ignored"] == {"cudagraph_rep": 5}
    assert (protocol["rounds"], protocol["cooldown_s"], protocol["flush_bytes"]) == (2, 0, 1 << 20)
    assert protocol["device"]["name"] == "a fake device"
    assert protocol["cache"] == "cold"
    assert protocol["probe"]["cold_over_warm"] < 1.3  # the fake flush evicts nothing, and the result says so
    assert "the flush evicts nothing" in protocol["probe"]["doubt"]
    assert {"python", "kernelmark", "libraries", "hostname_hash"} <= set(protocol["environment"])
    assert [each["before"]["clock_mhz"] for each in result["clocks"]["a"]] == [1000, 1000]


# --- several ranks ----------------------------------------------------------------------------------


class GapTimer(HostTimer):
    """The host timer, as if a fifth of each launch had been a gap."""

    tells_gap = True

    def attribute(self, collected, *, count_copies: bool) -> Samples:
        latency = super().attribute(collected, count_copies=count_copies).latency_ns
        return Samples(latency_ns=latency, device_busy_ns=tuple(each * 0.8 for each in latency))


def together(on_ranks, size: int, body, **rest) -> list[Any]:
    return on_ranks(size, lambda context: body(Rank(FakeDevice()), context), **rest)


@pytest.mark.spec("X13")
def test_each_launch_of_each_rank_is_flush_then_barrier_then_prepare(on_ranks) -> None:
    ranks = [Rank(FakeDevice()) for _ in range(2)]

    def body(context):
        rank = ranks[context.rank]
        prepare = {"a": lambda: rank.device.log.append("prepare")}
        return measure(rank, {"a": rank.launch(lambda _: US)}, distributed=context, prepare=prepare)

    results = on_ranks(2, body, log=[rank.device.log for rank in ranks])
    for rank, result in zip(ranks, results, strict=True):
        seen = [event for event in rank.device.log if event in ("flush", "barrier", "prepare", "launch")]
        of_the_probe = seen.index("barrier") - 1
        assert seen[:of_the_probe] == ["flush"] * 10
        assert seen[of_the_probe:] == ["flush", "barrier", "prepare", "launch"] * 35
        assert result["benchmark_protocol"]["counts"]["a"]["warmup"] == [5]
        assert result["benchmark_protocol"]["counts"]["a"]["samples"] == [30]
        assert result["benchmark_protocol"]["gpu_sleep"].startswith("skipped: ")
        assert result["benchmark_protocol"]["flush_bytes"] == rank.device.flusher().size_bytes


@pytest.mark.spec("X14")
def test_the_maximum_over_ranks_comes_before_the_median_and_the_median_before_the_mean_of_rounds(
    on_ranks,
) -> None:
    per_round = DISTRIBUTED_COUNTS.warmup + DISTRIBUTED_COUNTS.repeat

    def body(rank: Rank, context):
        def ns(index: int) -> int:
            turn, place = divmod(index, per_round)
            if place == DISTRIBUTED_COUNTS.warmup:
                return 500 * US  # one sample that a mean would follow, and a median does not
            slow = place % 2 == context.rank  # rank 0 on even launches, rank 1 on odd ones
            return (9 + turn if slow else 1) * US

        return measure(rank, {"a": rank.launch(ns)}, distributed=context, options={"rounds": 2})

    for result in together(on_ranks, 2, body):
        assert result["round_samples"] == {"a": [9, 10]}  # the medians of the two ranks are 5 and 5.5
        assert result["impls"] == {"a": 9.5}
        assert result["samples"]["a"] == [[500, *[9] * 29], [500, *[10] * 29]]
        assert result["ranks"]["a"]["samples"][0][0] == [500, 9, *[1, 9] * 14]
        assert result["ranks"]["a"]["samples"][0][1] == [500, 1, *[9, 1] * 14]
        assert sum(result["ranks"]["a"]["times_slowest"]) == 60
        assert result["ranks"]["a"]["launch_gap"] is None
        json.dumps(result)


@pytest.mark.spec("X14")
def test_the_slowest_rank_is_named_and_each_ranks_launch_gap_is_told(on_ranks) -> None:
    def body(rank: Rank, context):
        launch = rank.launch(lambda _: (10, 40, 20)[context.rank] * US)
        return measure(rank, {"a": launch}, timer=GapTimer(rank.device.clock), distributed=context)

    for result in together(on_ranks, 3, body, single_precision=False):
        assert result["ranks"]["a"]["slowest_rank"] == 1
        assert result["ranks"]["a"]["median"] == [10, 40, 20]
        assert result["ranks"]["a"]["launch_gap"] == [pytest.approx([2, 8, 4])]
        assert result["impls"] == {"a": 40}


@pytest.mark.spec("X15")
def test_a_span_of_nothing_on_one_rank_is_its_error_and_no_rank_has_a_time(on_ranks) -> None:
    def body(rank: Rank, context):
        launch = rank.launch(lambda index: 0 if context.rank == 1 and index == 12 else US)
        return measure(rank, {"a": launch}, distributed=context)

    found = together(on_ranks, 2, body)
    assert isinstance(found[1], TimingError)
    assert "launch 8 of 'a' on rank 1 read 0 ns" in str(found[1])
    assert isinstance(found[0], Exception)


@pytest.mark.spec("X15")
def test_ranks_that_want_different_things_time_nothing(on_ranks) -> None:
    def body(rank: Rank, context):
        names = ["a", "b"] if context.rank else ["b", "a"]
        funcs = {name: rank.launch(lambda _: US) for name in names}
        try:
            return measure(rank, funcs, distributed=context)
        finally:
            assert rank.calls == 0

    for error in together(on_ranks, 2, body):
        assert isinstance(error, DistributedError)
        assert "do not agree on what to time" in str(error)


@pytest.mark.spec("X15")
def test_a_builder_that_fails_on_one_rank_is_an_error_on_all_and_the_rest_is_timed(on_ranks) -> None:
    def body(rank: Rank, context):
        def build():
            if context.rank == 1:
                raise OSError("no such file")
            return rank.launch(lambda _: US)

        return measure(rank, {"a": rank.launch(lambda _: US)}, references={"b": build}, distributed=context)

    for result in together(on_ranks, 3, body):
        assert result["errors"] == {"b": "rank 1: OSError: no such file"}
        assert list(result["impls"]) == ["a"]


def test_one_rank_alone_is_several_ranks_too(on_ranks) -> None:
    (result,) = together(
        on_ranks,
        1,
        lambda rank, context: measure(rank, {"a": rank.launch(lambda _: US)}, distributed=context),
    )
    assert result["impls"] == {"a": 1}
    assert result["benchmark_protocol"]["world_size"] == 1


# --- references --------------------------------------------------------------------------------------


def launch() -> None: ...


def fails():
    raise RuntimeError("no such library")


@pytest.mark.spec("X8")
def test_each_builder_runs_once_and_the_others_go_on_after_one_that_raises() -> None:
    ran: list[str] = []

    def build(name: str):
        return lambda: ran.append(name) or launch

    built = build_references({"a": build("a"), "bad": fails, "b": build("b")})
    assert ran == ["a", "b"]
    assert built == {"a": launch, "bad": Unavailable("RuntimeError: no such library"), "b": launch}


@pytest.mark.spec("X8")
def test_a_builder_that_returns_no_launch_is_an_error_of_that_reference() -> None:
    built = build_references({"a": lambda: 3})
    assert built["a"] == Unavailable(
        "UsageError: the builder returned 3; it must return the launch, a callable without arguments"
    )


@pytest.mark.spec("X8")
def test_a_builder_that_returns_a_tensor_is_told_its_type_and_not_its_values() -> None:
    reason = build_references({"a": lambda: torch.zeros(64, 64)})["a"].reason  # type: ignore[union-attr]
    assert reason.startswith("UsageError: the builder returned a torch.Tensor; it must return the launch")


@pytest.mark.spec("X8")
def test_an_interrupt_while_building_is_not_a_baselines_error() -> None:
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_references({"a": interrupted})


@pytest.mark.spec("X8")
def test_stderr_gets_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    report_baseline_error("fa3", "ImportError: no module")
    assert capsys.readouterr() == ("", "BASELINE_ERROR: fa3: ImportError: no module\n")


@pytest.mark.spec("X15")
def test_what_one_rank_could_not_build_is_dropped_on_all_with_the_rank_named(on_ranks) -> None:
    def body(context):
        built = build_references({"a": lambda: launch, "bad": fails if context.rank else lambda: launch})
        return share_errors(built, Ranks(context))

    reason = "rank 1: RuntimeError: no such library; rank 2: RuntimeError: no such library"
    assert on_ranks(3, body) == [{"a": launch, "bad": Unavailable(reason)}] * 3


# --- through the engine ------------------------------------------------------------------------------


def test_launches_without_a_reference_are_rows_that_say_that_nothing_was_checked(
    here: Rank, tmp_path: Path
) -> None:
    result = measure(
        here,
        {"a": here.launch(lambda _: US)},
        references={"b": lambda: here.launch(lambda _: 2 * US), "c": fails},
        options={"repeat": 0.01, "rounds": 3},
        out=tmp_path / "run",
    )
    assert {name: each["check"] for name, each in result["checks"].items()} == {
        "a": "unverified",
        "b": "unverified",
        "c": "unavailable",
    }
    assert result["ratios"] == {}
    run = read_run(tmp_path / "run")
    assert [row.implementation for row in run.rows] == ["a", "b", "c"]
    assert all(row.ratio is None for row in run.rows)
    assert run.header.protocol.cooldown_s == 0
    assert (run.header.protocol.blocks, run.header.protocol.max_count) == (3, None)
    assert run.header.probe is not None
    assert run.end is not None
    assert "3 rounds of turns A B C" in (tmp_path / "run" / "report.md").read_text()


def test_a_reference_makes_launches_comparable_with_an_interval_over_the_rounds(here: Rank) -> None:
    def launch(ns: int):
        run = here.launch(lambda index: ns + index % 3)
        return lambda: (run(), torch.ones(4))[1]

    result = measure(
        here,
        {"a": launch(1000)},
        references={"b": lambda: launch(2000)},
        reference=lambda: torch.ones(4),
        options={"repeat": 0.01, "rounds": 4},
    )
    assert {each["check"] for each in result["checks"].values()} == {"verified"}
    assert result["ratios"]["b"]["value"] == pytest.approx(2, rel=0.01)
    assert result["ratios"]["b"]["low"] > 1.9
    assert (result["ratios"]["b"]["blocks"], result["ratios"]["b"]["verdict"]) == (4, "faster")


def test_a_launch_whose_answer_is_not_the_references_is_never_timed(here: Rank, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="a does not match the reference"):
        measure(here, {"a": lambda: torch.zeros(4)}, reference=lambda: torch.ones(4), out=tmp_path / "run")
    (row,) = read_run(tmp_path / "run").rows
    assert (row.check.value, row.timing) == ("failed", None)
