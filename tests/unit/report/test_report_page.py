"""The page on reports says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from kernelmark.records import Check
from kernelmark.report import Format
from kernelmark.report.columns import CHECK_MARKS, COLUMNS, SHOWN
from kernelmark.report.formats import json_report
from kernelmark.report.pages import DOCUMENT_VERSION
from kernelmark.report.remarks import _CHECKS

PAGE = (Path(__file__).parents[3] / "docs" / "reports.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_every_column_is_explained_in_its_order_and_those_for_people_in_the_words_of_a_page():
    lines = [line for line in section("The columns").splitlines() if line.startswith("| `")]
    for line, column in zip(lines, COLUMNS, strict=True):
        start = f"| `{column.key}` | {column.heading} | "
        assert line.startswith(start)
        assert line.endswith(". |")
        if column in SHOWN[:-1]:
            assert line == f"{start}{column.help} |"


def test_every_check_is_explained_with_its_mark_and_what_it_may_hold():
    for check in Check:
        mark = f"{CHECK_MARKS[check]} {check}" if check in CHECK_MARKS else check.value
        (line,) = re.findall(
            rf"^\| {check} \| `{mark}` \| .* \| (yes|no) \| (yes|no) \|$", PAGE, re.MULTILINE
        )
        assert line == ("yes" if check.timeable else "no", "yes" if check.comparable else "no")


def test_every_remark_is_explained():
    assert re.findall(r"^\| ([a-z ]+) \| \S", section("Remarks"), re.MULTILINE)[1:] == list(_CHECKS)


def test_every_format_is_listed():
    assert re.findall(r"^\| `(\w+)` \| ", PAGE.partition("\n## ")[0], re.MULTILINE) == [
        each.value for each in Format
    ]


def test_every_member_of_the_json_document_is_explained(stored):
    told = re.findall(r"`(\w+)`(?=[^|]*\| )", section("The JSON document"))
    members = re.findall(r'^"(\w+)": ', json_report(stored), re.MULTILINE)
    assert [name for name in told if name in members] == members
    assert f"version {DOCUMENT_VERSION} is the " in PAGE
