"""The JSON report: the records as they are, in a document with a version."""

from __future__ import annotations

import json
from collections.abc import Callable

from kernelmark.records import OutputCheck, Row, RunEnd, RunHeader, StoredRun
from kernelmark.report.json_ import SCHEMA_VERSION, json_report


def strict(text: str) -> dict:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_whole_run_comes_back_from_its_json(stored: StoredRun):
    report = strict(json_report(stored))
    assert (report["schema"], report["schema_version"]) == ("kernelmark.report", SCHEMA_VERSION)
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
