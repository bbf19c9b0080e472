"""Medians, spreads, biases and limits, from readings that are numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.audit.result import Audit, Failure, Reading, Setting, conclude, spread

Make = Callable[..., Setting]
ReadAll = Callable[..., list[Reading]]


def statuses(audit: Audit) -> dict[str, str]:
    return {line.instrument.name: line.status for line in audit.lines}


def test_a_cell_holds_median_spread_and_bias_over_runs(setting: Make, read_all: ReadAll) -> None:
    given = setting(only=("cupti", "ncu"))
    audit = conclude(given, [*read_all("cupti", 1.01, 1.02, 1.00), *read_all("ncu", 1.0, 1.0, 1.0)])
    for call in given.calls:
        cell = audit.cell(call.name, "cupti")
        assert cell.bias == pytest.approx(0.01)
        assert cell.spread == pytest.approx(0.02 / 1.01)
        assert len(cell.runs_ns) == 3
        assert audit.cell(call.name, "ncu").bias is None
    assert audit.reference == "ncu"
    assert audit.limits
    assert {limit.kept for limit in audit.limits if "against" in limit.what} == {True}


@pytest.mark.parametrize(
    ("runs", "missed"),
    [
        ((1.016, 1.016, 1.016), ["against ncu"] * 3),
        ((0.984, 0.984, 0.984), ["against ncu"] * 3),
        ((1.014, 1.014, 1.014), []),
        ((0.997, 1.0, 1.003), ["spread"] * 3),
        ((0.998, 1.0, 1.002), []),
        ((0.97, 1.0, 1.03), ["spread"] * 5),
    ],
)
def test_the_default_timer_is_held_to_its_limits_the_short_calls_to_wider_ones(
    setting: Make, read_all: ReadAll, runs: tuple[float, ...], missed: list[str]
) -> None:
    said = [*read_all("cupti", *runs), *read_all("ncu", 1.0, 1.0, 1.0)]
    audit = conclude(setting(only=("cupti", "ncu")), said)
    found = [limit.what for limit in audit.limits if limit.kept is False]
    assert [
        next(word for word in ("against ncu", "spread", "cost") if word in what) for what in found
    ] == missed
    assert len(audit.doubts) == len(missed)
    assert all("where at most" in doubt for doubt in audit.doubts)


def test_what_an_implementation_costs_is_limited_for_the_default_timer_alone(
    setting: Make, read_all: ReadAll
) -> None:
    said = [
        *read_all("cupti", 1, 1, 1, cost_s=1.1),
        *read_all("kineto", 1, 1, 1, cost_s=9),
        *read_all("ncu", 1, 1, 1, cost_s=None),
    ]
    audit = conclude(setting(only=("cupti", "kineto", "ncu")), said)
    assert [doubt.split(",")[0] for doubt in audit.doubts] == ["cupti cost"] * 5
    assert "1.10 s, where at most 1.00 s" in audit.doubts[0]
    assert {line.instrument.name: line.cost_s for line in audit.lines} == {
        "cupti": 1.1,
        "kineto": 9,
        "ncu": None,
    }


def test_without_ncu_the_bias_is_against_the_next_one_and_its_limit_is_not_judged(
    setting: Make, read_all: ReadAll
) -> None:
    said = [
        *read_all("cupti", 1, 1, 1),
        *read_all("kineto", 1.1, 1.1, 1.1),
        Failure("ncu", "ncu is not on the PATH", unavailable=True),
    ]
    audit = conclude(setting(only=("cupti", "kineto", "ncu")), said)
    assert audit.reference == "cupti"
    assert audit.cell(audit.setting.calls[0].name, "kineto").bias == pytest.approx(0.1)
    assert [limit.kept for limit in audit.limits if "against" in limit.what] == [None] * 3
    assert statuses(audit)["ncu"] == "unavailable: ncu is not on the PATH"
    assert audit.doubts == ()


def test_a_cold_reading_is_not_measured_against_a_warm_one(setting: Make, read_all: ReadAll) -> None:
    said = [
        each for name in ("host", "host-warm", "torch-timer") for each in read_all(name, 1, 1, kind="cpu")
    ]
    audit = conclude(setting("cpu", references=("torch-timer",)), said)
    call = audit.setting.calls[0].name
    assert audit.cell(call, "host-warm").bias == 0
    assert audit.cell(call, "host").bias is None
    assert audit.limits == ()


def test_an_instrument_that_is_here_and_reads_nothing_is_in_doubt(setting: Make, read_all: ReadAll) -> None:
    given = setting(only=("cupti", "proton"))
    refusals = [Failure("proton", "OffThreadLaunchError: no", call.name) for call in given.calls]
    audit = conclude(given, [*read_all("cupti", 1), *refusals])
    assert statuses(audit)["proton"] == "no reading: OffThreadLaunchError: no"
    assert audit.doubts == ("proton gave no reading: OffThreadLaunchError: no",)


def test_a_refused_call_and_an_early_end_are_told_beside_what_was_read(
    setting: Make, read_all: ReadAll
) -> None:
    given = setting(only=("cupti", "kineto"))
    first = given.calls[0].name
    read = [each for each in read_all("kineto", 1) if each.call != first]
    said = [
        *read_all("cupti", 1),
        *read,
        Failure("kineto", "EmptyIterationError: nothing", first),
        Failure("kineto", "its process died of SIGKILL"),
    ]
    audit = conclude(given, said)
    assert statuses(audit)["kineto"] == "read"
    assert audit.doubts == (
        "kineto did not read to the end: its process died of SIGKILL",
        f"kineto on {first}: EmptyIterationError: nothing",
    )


def test_an_instrument_that_said_nothing_at_all_is_accounted_for(setting: Make) -> None:
    audit = conclude(setting(only=("cupti",)), [])
    assert statuses(audit) == {"cupti": "no reading: nothing was said"}
    assert audit.reference is None


@given(st.lists(st.floats(1, 1e9), min_size=2, max_size=9))
def test_the_spread_does_not_depend_on_unit_or_order(values: list[float]) -> None:
    found = spread(values)
    assert found == pytest.approx(spread([1000 * each for each in reversed(values)]))
    assert found is not None
    assert found >= 0
    assert spread(values[:1]) is None


def test_the_runs_of_a_cell_stand_in_their_order(setting: Make, read_all: ReadAll) -> None:
    said = read_all("cupti", 1, 2, 3)
    shuffled = [replace(each) for each in reversed(said)]
    audit = conclude(setting(only=("cupti",)), shuffled)
    assert audit.cell(audit.setting.calls[0].name, "cupti").runs_ns == (1_000, 2_000, 3_000)
