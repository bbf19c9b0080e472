"""The two files of an audit: everything is in the one for programs, and the other one survives odd names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmark.audit import as_json, audit_page, write_audit
from kernelmark.audit.document import HEADINGS, summary
from kernelmark.audit.result import Audit, Failure, conclude
from kernelmark.report.pages import DOCUMENT_VERSION, page_text


@pytest.fixture
def found(setting: Callable, read_all: Callable) -> Audit:
    said = [
        *read_all("cupti", 1.01, 1.012, 1.011, cost_s=0.25),
        *read_all("ncu", 1.0, 1.0, 1.0, cost_s=None),
        Failure("proton", "no | Triton", unavailable=True),
        Failure("nvbench", "its process died of SIGSEGV"),
    ]
    return conclude(setting(only=("cupti", "proton", "nvbench", "ncu"), versions={"ncu": "2025.3"}), said)


def test_the_json_holds_every_run_and_is_json(found: Audit, tmp_path: Path) -> None:
    paths = write_audit(found, tmp_path)
    assert [path.name for path in paths] == ["audit.json", "audit.md"]
    told = json.loads(paths[0].read_text(encoding="utf-8"))
    assert told == as_json(found)
    assert (told["schema"], told["schema_version"]) == ("kernelmark.audit", DOCUMENT_VERSION)
    assert (told["reference"], told["runs"], told["versions"]) == ("ncu", 3, {"ncu": "2025.3"})
    assert told["budget"]["blocks"] == 10
    assert [each["status"].split(":")[0] for each in told["instruments"]] == [
        "read",
        "unavailable",
        "no reading",
        "read",
    ]
    first = told["readings"][0]
    assert first["runs_ns"] == pytest.approx([1010, 1012, 1011])
    assert first["bias"] == pytest.approx(0.011)
    assert first["cost_s"] == [0.25] * 3
    assert len(told["readings"]) == 10
    assert [each["kept"] for each in told["limits"]].count(False) == 0
    assert told["doubts"] == list(found.doubts)
    assert len(told["doubts"]) == 1


def test_the_page_shows_bias_and_spread_and_what_gave_no_reading(found: Audit, tmp_path: Path) -> None:
    text = write_audit(found, tmp_path)[1].read_text(encoding="utf-8")
    assert text.startswith("# Instruments on A \\| device\n")
    assert "| add of 256 floats | cupti | cold | 1.011 µs | +1.10 % | 0.20 % | 0.25 s |  |" in text
    assert "unavailable: no \\| Triton" in text
    assert "nvbench gave no reading: its process died of SIGSEGV" in text
    assert "| cupti cost, add of 256 floats | 1.00 s | 0.250 s | kept |" in text
    read = [line for line in text.splitlines() if line.startswith("| ") and "µs" in line]
    assert [line.split(" | ")[1] for line in read] == ["cupti", "ncu"] * 5
    assert all(line.replace("\\|", "").count("|") == len(HEADINGS) + 1 for line in read)
    assert "1.011 µs" in page_text(audit_page(found))


def test_the_summary_names_what_is_measured_against(setting: Callable, found: Audit) -> None:
    assert "3 times; bias: median over that of ncu, less 1" in summary(found)
    assert "nothing to measure against" in summary(conclude(setting(runs=1), []))
