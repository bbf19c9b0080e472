"""The CSV report: raw numbers for programs, nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.records import Row, StoredRun
from kernelmark.report.columns import COLUMNS
from kernelmark.report.csv_ import csv_report


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_numbers_are_the_records_own_without_rounding_or_unit(stored: StoredRun):
    lines = read(csv_report(stored.rows))
    assert len(lines) == len(stored.rows)
    for line, row in zip(lines, stored.rows, strict=True):
        assert line["implementation"] == row.implementation
        assert line["check"] == row.check.value
        if row.timing is None:
            assert line["device_busy_ns"] == line["tflops"] == ""
            continue
        assert row.roofline is not None
        assert float(line["device_busy_ns"]) == row.timing.device_busy.median_ns
        assert float(line["tflops"]) == row.roofline.tflops
        assert int(line["samples"]) == row.timing.device_busy.samples
        assert line["ratio"] == ("" if row.ratio is None else str(row.ratio.value))
        assert line["verdict"] == ("" if row.ratio is None else row.ratio.verdict)


def test_the_unit_is_in_the_name_of_every_time():
    names = [column.key for column in COLUMNS]
    assert "device_busy_ns" in names
    times = [
        name for name in names if name.startswith(("device_busy", "latency", "gap", "speed_of", "uncounted"))
    ]
    assert all(name.endswith("_ns") for name in times)


@pytest.mark.spec("T36")
def test_the_parameters_of_the_case_are_in_the_row(stored: StoredRun):
    assert json.loads(read(csv_report(stored.rows))[0]["params"]) == stored.rows[0].params


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", " ="])
def test_text_that_a_spreadsheet_would_run_is_defused(make_row: Callable[..., Row], start: str):
    (line,) = read(csv_report([make_row(f"{start}HYPERLINK(1)", case=f"{start}1+1", note=start + "x")]))
    assert line["implementation"] == f"'{start}HYPERLINK(1)"
    assert line["case"] == f"'{start}1+1"
    assert line["note"] == f"'{start}x"


def test_a_negative_number_stays_a_number(make_row: Callable[..., Row], make_timing: Callable):
    text = csv_report([make_row(timing=make_timing(drift=-0.125))])
    assert read(text)[0]["drift"] == "-0.125"
    assert ",-0.125," in text


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=3))
def test_any_text_comes_back_from_its_cell(make_row: Callable[..., Row], texts: list[str]):
    lines = read(csv_report([make_row(text, case=text) for text in texts]))
    assert [line["implementation"].removeprefix("'") for line in lines] == [
        text.removeprefix("'") for text in texts
    ]
    assert all(line.keys() == {column.key for column in COLUMNS} for line in lines)
    assert not any(
        line["case"].lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n")) for line in lines
    )


def test_truth_is_lower_case_as_other_programs_write_it(make_row: Callable[..., Row]):
    assert read(csv_report([make_row(count_copies=True)]))[0]["count_copies"] == "true"


def test_no_rows_leave_the_names_of_the_columns():
    assert csv_report([]).count("\n") == 1
    assert read(csv_report([])) == []
