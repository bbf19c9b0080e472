"""The page of a run shows each candidate once, and the score of all of them."""

from __future__ import annotations

import json
from pathlib import Path

from kernelmark.kernelbench.candidates.job import Settings
from kernelmark.kernelbench.candidates.judged import Judged, Speedup
from kernelmark.kernelbench.candidates.judging import Judging
from kernelmark.kernelbench.candidates.page import candidates_page, write_pages
from kernelmark.kernelbench.statuses import Status
from kernelmark.report.pages import DOCUMENT_VERSION, page_text

JUDGED = (
    Judged(
        "level1/1_a/x.py",
        "level1/1_a.py",
        Status.VERIFIED,
        time_ns=1500.0,
        speedups={"eager": Speedup(2.5, 2.25, 2.75), "inductor": Speedup(0.9)},
        notes=("weights not shared",),
    ),
    Judged("level1/1_a/y.py", "level1/1_a.py", Status.WRONG, "off | by *one*"),
)


def test_the_console_and_the_document_say_the_same(tmp_path: Path) -> None:
    judging = Judging(tmp_path, tmp_path, settings=Settings())
    text = page_text(candidates_page(JUDGED, judging, "cpu"))
    (line,) = [each for each in text.splitlines() if each.startswith("level1/1_a/x.py ")]
    assert line.split() == [
        "level1/1_a/x.py",
        "level1/1_a",
        "verified",
        "1.500",
        "µs",
        "2.500",
        "[2.250,",
        "2.750]",
        "0.900",
    ]
    assert "2 candidates: 1 verified, 1 wrong" in text
    assert "level1/1_a/x.py: weights not shared" in text
    page = write_pages(JUDGED, judging, "cpu").read_text()
    assert "| 2.500 [2.250, 2.750] | 0.900 |" in page
    assert "off \\| by" in page
    told = json.loads((tmp_path / "candidates.json").read_text())
    assert (told["schema"], told["schema_version"]) == ("kernelmark.candidates", DOCUMENT_VERSION)
    assert told["facts"]["device"] == "cpu"
    assert [each["name"] for each in told["candidates"]] == [each.name for each in JUDGED]
    assert told["fast_p"][0]["estimated"] == [0.5, 0.5, 0.5, 0.5, 0.5]
    assert told["fast_p"][0]["thresholds"] == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_a_run_without_baselines_or_notes_has_no_such_sections(tmp_path: Path) -> None:
    judging = Judging(tmp_path, tmp_path, settings=Settings(baselines=()))
    text = page_text(candidates_page(JUDGED[1:], judging, "cpu"))
    assert "FAST_P" not in text
    assert "NOTES" not in text
