"""A stored run is rendered again in every format, and its reports stand beside its records."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.errors import RecordError
from kernelmark.records import RECORDS_FILE, OutputCheck, Row, RunEnd, RunHeader, StoredRun
from kernelmark.report import Format, render, write_report, write_reports
from kernelmark.report.columns import COLUMNS
from kernelmark.report.formats import csv_report, json_report
from kernelmark.report.pages import DOCUMENT_VERSION


@pytest.fixture
def folder(tmp_path: Path, stored: StoredRun) -> Path:
    shutil.copy(stored.path, tmp_path / RECORDS_FILE)
    return tmp_path


def test_the_reports_stand_beside_the_records(folder: Path, stored: StoredRun):
    before = (folder / RECORDS_FILE).read_bytes()
    paths = write_reports(folder)
    assert [path.name for path in paths] == ["report.md", "report.json", "report.csv"]
    assert {path.name for path in folder.iterdir()} == {RECORDS_FILE, *(path.name for path in paths)}
    for path, form in zip(paths, (Format.MARKDOWN, Format.JSON, Format.CSV), strict=True):
        assert path.read_bytes() == render(stored, form).encode()
    assert (folder / RECORDS_FILE).read_bytes() == before


def test_rendering_again_gives_the_same_reports(folder: Path):
    first = [path.read_bytes() for path in write_reports(folder)]
    assert [path.read_bytes() for path in write_reports(folder)] == first


@pytest.mark.parametrize("form", list(Format))
def test_every_format_tells_every_row_with_its_check_and_ends_its_last_line(stored: StoredRun, form: Format):
    text = render(stored, form)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    for row in stored.rows:
        assert row.implementation in text
        assert row.check.value in text


@pytest.mark.parametrize("form", list(Format))
def test_no_format_shows_a_ratio_that_the_record_does_not_hold(stored: StoredRun, form: Format):
    bare = StoredRun(
        stored.path,
        stored.header,
        tuple(row.model_copy(update={"ratio": None}) for row in stored.rows),
        stored.end,
    )
    text = render(bare, form)
    assert "1.19" not in text
    assert "faster" not in text.replace("ours is faster", "").replace("ours is faster or slower", "").replace(
        '"faster": 0', ""
    )


def test_a_folder_without_a_run_has_no_reports(tmp_path: Path):
    with pytest.raises(RecordError, match="name a folder that holds a run"):
        write_reports(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_report_that_cannot_be_written_names_its_path_and_leaves_the_old_one(tmp_path: Path):
    with pytest.raises(RecordError, match=r"cannot write .*report\.md: No such file.*choose another place"):
        write_report(tmp_path / "missing" / "report.md", "x")
    (tmp_path / "taken").mkdir()
    with pytest.raises(RecordError, match="cannot write"):
        write_report(tmp_path / "taken", "x")
    old = tmp_path / "report.md"
    old.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_report(old, "half a pair: \ud800")
    assert old.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"taken", "report.md"}


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path):
    (tmp_path / "real.md").write_text("old")
    (tmp_path / "link.md").symlink_to("real.md")
    write_report(tmp_path / "link.md", "new")
    assert (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "real.md").read_text() == "new"


def test_a_pipe_or_a_device_is_written_to_and_not_replaced(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_report(pipe, "a report")
        assert os.read(reading, 100) == b"a report"
    finally:
        os.close(reading)
    assert pipe.is_fifo()


def strict(text: str) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_whole_run_comes_back_from_its_json(stored: StoredRun):
    report = strict(json_report(stored))
    assert (report["schema"], report["schema_version"]) == ("kernelmark.report", DOCUMENT_VERSION)
    assert RunHeader.model_validate(report["header"]) == stored.header
    assert tuple(Row.model_validate_json(json.dumps(row)) for row in report["rows"]) == stored.rows
    assert RunEnd.model_validate(report["end"]) == stored.end
    assert report["truncated"] is False


def test_it_counts_the_checks_and_holds_the_remarks(stored: StoredRun):
    report = strict(json_report(stored))
    assert report["checks"] == {
        "verified": 3,
        "partial": 1,
        "unverified": 2,
        "noncomparable": 1,
        "failed": 1,
        "unavailable": 1,
    }
    assert [remark["subject"] for remark in report["remarks"]] == ["drift", "repeated readings"]


def test_two_reports_can_be_compared_by_line(stored: StoredRun):
    lines = json_report(stored).splitlines()
    assert sum(line.startswith('{"kind":"row"') for line in lines) == len(stored.rows)


def test_a_run_without_rows_or_end_is_a_document_too(make_run: Callable[..., StoredRun]):
    report = strict(json_report(make_run(end=None, truncated=True)))
    assert (report["rows"], report["end"], report["truncated"]) == ([], None, True)


def test_an_error_without_bound_is_text_since_json_has_no_infinity(
    make_row: Callable[..., Row], make_run: Callable[..., StoredRun]
):
    output = OutputCheck(
        output="out",
        dtype="int32",
        shape=(1,),
        tolerance="exact",
        passed=False,
        total=1,
        mismatched=1,
        error_over_tolerance=float("inf"),
    )
    report = strict(json_report(make_run(make_row(outputs=(output,)))))
    assert report["rows"][0]["outputs"][0]["error_over_tolerance"] == "Infinity"


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
