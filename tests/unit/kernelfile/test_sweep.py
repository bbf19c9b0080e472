"""Several sizes: read, run, kept, and put in one table and one plot."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from kernelmark.errors import CrashedError, UsageError, VerificationError
from kernelmark.kernelfile.sweep import parse_sweep, run_sweep

SOLUTION = """
import torch

def setup(N, **kwargs):
    return {"inputs": {"x": torch.randn(N), "out": torch.empty(N)}, "outputs": ["out"]}

def run_kernel(x, out):
    if len(x) == 5:
        raise ValueError("five")
    torch.mul(x, 3 if len(x) == 3 else 2, out=out)
"""


@pytest.mark.parametrize(
    ("texts", "sizes"),
    [
        (["M=1,2"], [{"M": "1"}, {"M": "2"}]),
        (["K=2^8..2^10"], [{"K": "256"}, {"K": "512"}, {"K": "1024"}]),
        (["B=3..5,9"], [{"B": "3"}, {"B": "4"}, {"B": "5"}, {"B": "9"}]),
        (["M=1,2", "N=7"], [{"M": "1", "N": "7"}, {"M": "2", "N": "7"}]),
    ],
)
def test_lists_and_ranges_are_read(texts: list[str], sizes: list[dict[str, str]]) -> None:
    assert parse_sweep(texts) == sizes


@pytest.mark.parametrize(
    "texts",
    [["M"], ["=1"], ["M="], ["M=1,,2"], ["M=2^3..9"], ["M=2^3..3^4"], ["M=5..4"], ["M=1..", "M=1"], ["M=1", "M=2"],
     ["M=1..999999"], ["M=1..100", "N=1..100"]],
)  # fmt: skip
def test_what_is_no_sweep_is_refused(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="--sweep"):
        parse_sweep(texts)


def test_a_sweep_has_a_line_and_a_mark_for_each_size_and_goes_on_where_it_stopped(
    asked, tmp_path: Path
) -> None:
    out, told = tmp_path / "out", []
    points = run_sweep(asked(SOLUTION), parse_sweep(["N=8,16"]), told=told.append)
    assert [each.found["outcome"] for each in points] == ["measured", "measured"]
    assert told == points
    page = (out / "sweep.md").read_text()
    assert "| N=8 | measured |" in page
    drawn = ElementTree.fromstring((out / "sweep.svg").read_text())
    assert len(drawn.findall("{*}circle")) == 4
    again = run_sweep(asked(SOLUTION), parse_sweep(["N=8,32"]))
    assert [each.kept for each in again] == [True, False]
    stored = json.loads((out / "sweep.json").read_text())
    (out / "sweep.json").write_text(json.dumps({**stored, "schema_version": 1}))
    other = run_sweep(asked(SOLUTION), parse_sweep(["N=8"]))
    assert [each.kept for each in other] == [False]
    changed = run_sweep(asked(SOLUTION + "\n# changed\n"), parse_sweep(["N=8"]))
    assert [each.kept for each in changed] == [False]


def test_sizes_that_fail_are_lines_and_the_others_are_still_measured(asked, tmp_path: Path) -> None:
    with pytest.raises(CrashedError, match="five"):
        run_sweep(asked(SOLUTION), parse_sweep(["N=3,4,5,6"]))
    points = json.loads((tmp_path / "out" / "sweep.json").read_text())["points"]
    assert [each["found"]["outcome"] for each in points] == ["wrong", "measured", "crashed", "measured"]
    with pytest.raises(VerificationError):
        run_sweep(asked(SOLUTION), parse_sweep(["N=3,4"]))


DYING = """
import os, torch
from pathlib import Path

def setup(N, **kwargs):
    with open(Path(__file__).with_name("pids"), "a") as stream:
        stream.write(f"{N} {os.getpid()}\\n")
    return {"inputs": {"x": torch.randn(N), "out": torch.empty(N)}, "outputs": ["out"]}

def run_kernel(x, out):
    if len(x) == 5:
        print("about to die", flush=True)
        os._exit(9)
    torch.mul(x, 2, out=out)
"""


def test_one_worker_measures_all_sizes_and_a_size_that_kills_it_is_followed_by_a_new_one(
    asked, tmp_path: Path
) -> None:
    with pytest.raises(CrashedError, match=r"status 9(.|\n)*about to die"):
        run_sweep(asked(DYING, isolation=True), parse_sweep(["N=3,4,5,6,7"]))
    points = json.loads((tmp_path / "out" / "sweep.json").read_text())["points"]
    outcomes = ["measured", "measured", "crashed", "measured", "measured"]
    assert [each["found"]["outcome"] for each in points] == outcomes
    lines = [line.split() for line in (tmp_path / "pids").read_text().splitlines()]
    workers = {size: {pid for each, pid in lines if each == size} for size, _ in lines}
    assert workers["3"] == workers["4"] == workers["5"]
    assert workers["6"] == workers["7"] != workers["5"]
    assert all(len(pids) == 1 for pids in workers.values())
    # each size's last words are its own
    page = (tmp_path / "out" / "sweep" / "N=6" / "benchmark.md").read_text()
    assert "about to die" not in page


def test_a_name_is_swept_or_given(asked) -> None:
    with pytest.raises(UsageError, match="leave one"):
        run_sweep(asked(SOLUTION, values={"N": "3"}), parse_sweep(["N=4"]))
