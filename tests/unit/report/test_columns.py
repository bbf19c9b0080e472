"""The one table of quantities."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from kernelmark.records import Check, OutputCheck, Ratio, RooflineReading, Row, StoredRun
from kernelmark.report.columns import CHECK_MARKS, COLUMNS, NOTES, SHOWN, Column, filled_columns
from kernelmark.units import TimeScale

SCALE = TimeScale.fit([1_000])
BY_KEY = {column.key: column for column in COLUMNS}


def output(error: float | None, *, passed: bool = True) -> OutputCheck:
    return OutputCheck(
        output="out",
        dtype="float16",
        shape=(1,),
        tolerance="atol=1",
        passed=passed,
        total=1,
        mismatched=0,
        max_abs_error=error,
        error_over_tolerance=error,
    )


def test_every_column_has_its_own_name_and_those_for_people_a_sentence_of_help():
    assert len(BY_KEY) == len(COLUMNS)
    for column in COLUMNS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", column.key)
    for column in SHOWN[:-1]:
        assert column.help.endswith(".")
        assert len(column.help) > 10


def test_people_see_what_a_row_says_in_its_fixed_order():
    assert [column.heading for column in SHOWN] == [
        "implementation",
        "backend",
        "check",
        "error / tolerance",
        "device busy",
        "latency",
        "gap",
        "kernels",
        "samples",
        "p10",
        "p90",
        "empty reading",
        "drift",
        "TFLOP/s",
        "TB/s",
        "% of speed of light",
        "ratio [low, high]",
        "notes",
    ]
    assert SHOWN[-1] is NOTES


def test_a_narrow_console_may_drop_every_column_but_four_and_never_two_at_once():
    kept = [column.key for column in SHOWN if not column.drop and column is not NOTES]
    assert kept == ["implementation", "check", "device_busy_ns", "ratio"]
    ranks = [column.drop for column in SHOWN if column.drop]
    assert len(set(ranks)) == len(ranks)


def test_every_column_copes_with_every_stored_row(stored: StoredRun):
    for row in stored.rows:
        for column in COLUMNS:
            value = column.get(row)
            assert value is None or isinstance(value, str | int | float | bool)
            assert isinstance(column.text(row, SCALE), str)


@pytest.mark.spec("T37")
def test_without_a_profile_the_speed_of_light_is_blank_and_the_throughput_is_not(
    make_row: Callable[..., Row], make_timing: Callable
):
    reading = RooflineReading(flops=10, bytes=20, tflops=1.5, bandwidth_tbs=0.25)
    row = make_row(timing=make_timing(), roofline=reading)
    assert [
        BY_KEY[key].text(row, SCALE) for key in ("tflops", "bandwidth_tbs", "percent_of_speed_of_light")
    ] == [
        "1.500",
        "0.2500",
        "",
    ]
    assert BY_KEY["percent_of_speed_of_light"].get(row) is None


def test_where_no_operations_are_known_their_rate_is_blank_and_not_0(
    make_row: Callable[..., Row], make_timing: Callable
):
    reading = RooflineReading(flops=0, bytes=20, tflops=0, bandwidth_tbs=0.25)
    row = make_row(timing=make_timing(), roofline=reading)
    assert [BY_KEY[key].text(row, SCALE) for key in ("flops", "tflops", "bandwidth_tbs")] == [
        "",
        "",
        "0.2500",
    ]
    known = row.model_copy(
        update={"roofline": reading.model_copy(update={"percent_of_speed_of_light": 61.27})}
    )
    assert BY_KEY["percent_of_speed_of_light"].text(known, SCALE) == "61.3 %"


@pytest.mark.spec("T36")
def test_only_a_check_that_vouches_for_nothing_has_a_mark(make_row: Callable[..., Row]):
    for check in Check:
        text = BY_KEY["check"].text(make_row(check=check), SCALE)
        assert text.endswith(check.value)
        assert (text != check.value) is (not check.comparable)
        assert (check in CHECK_MARKS) is (not check.comparable)


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        ("faster", "1.200 [1.100, 1.300] ours faster"),
        ("slower", "1.200 [1.100, 1.300] ours slower"),
        ("undecided", "1.200 [1.100, 1.300] undecided"),
    ],
)
def test_a_ratio_is_shown_with_the_verdict_it_was_stored_with(
    make_row: Callable[..., Row], make_timing: Callable, verdict: str, text: str
):
    ratio = Ratio(value=1.2, low=1.1, high=1.3, blocks=9, verdict=verdict)  # type: ignore[arg-type]
    assert BY_KEY["ratio"].text(make_row(timing=make_timing(), ratio=ratio), SCALE) == text


@pytest.mark.spec("T28")
def test_a_ratio_of_one_block_has_no_interval_and_says_so(
    make_row: Callable[..., Row], make_timing: Callable
):
    row = make_row(timing=make_timing(), ratio=Ratio(value=1.2, blocks=1))
    assert BY_KEY["ratio"].text(row, SCALE) == "1.200 no interval"


@pytest.mark.spec("T20", "T23", "T36")
def test_no_ratio_is_made_up_where_the_record_holds_none(make_row: Callable[..., Row], make_timing: Callable):
    timed = [make_row(check=check, timing=make_timing()) for check in Check if check.timeable]
    assert {BY_KEY["ratio"].text(row, SCALE) for row in timed} == {""}
    assert {
        BY_KEY[key].get(row) for row in timed for key in BY_KEY if key.startswith(("ratio", "verdict"))
    } == {None}


@pytest.mark.parametrize(
    ("errors", "worst"),
    [
        ((0.1, 0.9, 0.5), 0.9),
        ((None, 0.2), 0.2),
        ((None,), None),
        ((), None),
        ((1.0, float("inf")), float("inf")),
    ],
)
def test_the_error_shown_is_that_of_the_worst_output(
    make_row: Callable[..., Row], errors: tuple[float | None, ...], worst: float | None
):
    row = make_row(outputs=tuple(output(error) for error in errors))
    assert BY_KEY["error_over_tolerance"].get(row) == worst


def test_an_error_that_is_no_number_is_the_worst_of_all(make_row: Callable[..., Row]):
    row = make_row(outputs=(output(0.1), output(float("nan")), output(9.0)))
    assert BY_KEY["max_abs_error"].text(row, SCALE) == "nan"


def test_a_column_that_no_row_fills_is_left_out(make_row: Callable[..., Row], make_timing: Callable):
    timed = make_row(timing=make_timing())
    assert [column.heading for column in filled_columns([make_row()])] == ["implementation", "check"]
    assert "gap" not in [column.heading for column in filled_columns([timed])]
    with_gap = make_row(timing=make_timing(gap_ns=0, n_kernels=2))
    assert {"gap", "kernels"} <= {column.heading for column in filled_columns([timed, with_gap])}


def test_a_name_from_outside_is_made_visible(make_row: Callable[..., Row]):
    row = make_row("a\x1b[31mb\n", backend="x\ty")
    assert BY_KEY["implementation"].text(row, SCALE) == r"a\x1b[31mb\n"
    assert BY_KEY["backend"].text(row, SCALE) == r"x\ty"


def test_a_column_without_a_formatter_writes_its_value():
    assert Column("n", lambda row: 3).text(None, SCALE) == "3"  # type: ignore[arg-type]


@pytest.mark.parametrize(("known", "text"), [({"flops": 0}, ("", "1.000")), ({"bytes": 0}, ("2.000", ""))])
def test_a_throughput_is_blank_where_no_work_is_known(
    make_row: Callable[..., Row], make_timing: Callable, known: dict, text: tuple[str, str]
):
    facts = {"flops": 1, "bytes": 1, "tflops": 2.0, "bandwidth_tbs": 1.0, **known}
    row = make_row(timing=make_timing(), roofline=RooflineReading(**facts))
    columns = {column.key: column for column in COLUMNS}
    scale = TimeScale.fit(())
    assert tuple(columns[key].text(row, scale) for key in ("tflops", "bandwidth_tbs")) == text


def test_the_instruments_empty_reading_and_the_drift_stand_beside_the_row(
    make_row: Callable[..., Row], make_timing: Callable
):
    row = make_row(timing=make_timing(3e6, instrument_empty_ns=512, drift=-0.0213))
    columns = {column.key: column for column in filled_columns([row])}
    scale = TimeScale.fit([3e6])
    assert columns["instrument_empty_ns"].text(row, scale) == "512 ns"
    assert columns["drift"].text(row, scale) == "-2.1 %"
