"""The page shows each candidate once; the score counts what is correct and more than p times as fast; lines survive."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelmark.errors import UsageError
from kernelmark.kernelbench.candidates.job import Judging, Settings
from kernelmark.kernelbench.candidates.page import (
    KEPT,
    Judged,
    Speedup,
    candidates_page,
    fast_p,
    read_judged,
    take_up,
    write_pages,
)
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


def one(
    problem: str,
    status: Status = Status.VERIFIED,
    value: float | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Judged:
    speedups = {} if value is None else {"eager": Speedup(value, low, high)}
    return Judged(f"{problem}-{value}-{status}", problem, status, speedups=speedups)


def test_a_speedup_counts_where_it_is_above_p_and_not_where_it_equals_it() -> None:
    judged = [
        one("a", value=2.0, low=1.9, high=2.1),
        one("b", value=1.6, low=1.4, high=1.8),
        one("c", value=0.4, low=0.3, high=0.6),
        one("d", Status.WRONG, value=9.0, low=8.0, high=10.0),
    ]
    (score,) = fast_p(judged, ["eager"])
    assert (score.attempted, score.best) == (4, False)
    assert score.estimated == (0.75, 0.5, 0.5, 0.5, 0.0)
    assert score.certain == (0.75, 0.5, 0.5, 0.25, 0.0)


def test_what_is_not_verified_counts_among_what_was_attempted_only() -> None:
    others = [
        one(status.name, status, value=3.0, low=2.5, high=3.5)
        for status in Status
        if status is not Status.VERIFIED
    ]
    (score,) = fast_p([one("a", value=3.0, low=2.5, high=3.5), *others], ["eager"])
    assert score.estimated == score.certain == (1 / len(Status),) * 5


def test_a_correct_one_without_a_ratio_or_an_interval_counts_as_correct() -> None:
    (eager, inductor) = fast_p([one("a", value=3.0), one("b")], ["eager", "inductor"])
    assert eager.estimated == (1.0, 0.5, 0.5, 0.5, 0.5)
    assert eager.certain == inductor.estimated == (1.0, 0.0, 0.0, 0.0, 0.0)


def test_with_several_candidates_of_a_problem_the_best_of_each_is_scored_too() -> None:
    judged = [
        one("a", value=0.8, low=0.7, high=0.9),
        one("a", value=1.2, low=1.1, high=1.3),
        one("b", Status.CRASH),
    ]
    each, best = fast_p(judged, ["eager"])
    assert each.estimated == (2 / 3, 2 / 3, 1 / 3, 0.0, 0.0)
    assert (best.attempted, best.best) == (2, True)
    assert best.estimated == (0.5, 0.5, 0.5, 0.0, 0.0)


def test_nothing_attempted_has_no_score() -> None:
    assert fast_p([], ["eager"]) == ()


def test_a_line_gives_back_what_was_written(tmp_path: Path) -> None:
    first = Judged("a.py", "level1/1_a.py", Status.WRONG, "off by one", wall_s=1.5, fingerprint="f")
    again = Judged(
        "a.py",
        "level1/1_a.py",
        Status.VERIFIED,
        time_ns=12.5,
        speedups={"eager": Speedup(1.5, 1.4, 1.6), "inductor": Speedup(0.5)},
        notes=("a note",),
    )
    other = Judged("b.py", "level1/1_a.py", Status.TIMEOUT)
    file = tmp_path / "kept.jsonl"
    lines = [first.to_json(), other.to_json(), again.to_json(), "[]", '{"name": 1}', other.to_json()[:20]]
    file.write_text("\n".join(lines))
    assert read_judged(file) == {"a.py": again, "b.py": other}
    assert read_judged(tmp_path / "none") == {}


def test_it_ends_as_a_kernel_of_a_suite_does() -> None:
    outcome = Judged("a.py", "level1/1_a.py", Status.WRONG, "off", wall_s=2.0).outcome
    assert (outcome.kernel, outcome.status, outcome.message, outcome.wall_s) == (
        "a.py",
        Status.WRONG,
        "off",
        2.0,
    )


def test_a_run_is_taken_up_only_where_the_same_is_asked_for(tmp_path: Path) -> None:
    line = Judged("a.py", "level1/1_a.py", Status.WRONG).to_json() + "\n"
    assert take_up(tmp_path, {"dtype": "f32", "atol": None}, resume=True) == {}
    (tmp_path / KEPT).write_text(line)
    assert list(take_up(tmp_path, {"dtype": "f32", "atol": None}, resume=True)) == ["a.py"]
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UsageError, match="made with dtype f32, and this one asks for bf16; ask for the same"):
        take_up(tmp_path, {"dtype": "bf16", "atol": None}, resume=True)
    with pytest.raises(UsageError, match="made with atol None, and this one asks for"):
        take_up(tmp_path, {"dtype": "f32", "atol": 0.1}, resume=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert take_up(tmp_path, {"dtype": "bf16"}, resume=False) == {}
    assert not (tmp_path / KEPT).exists()
