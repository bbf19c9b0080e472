"""The study of two GPUs, rehearsed on the CPU: it runs, it judges, and it can fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STUDIES = Path(__file__).parents[2] / "studies"
sys.path.insert(0, str(STUDIES))

import two_gpus  # noqa: E402 - a script, which finds its other half beside itself
import two_gpus_expected  # noqa: E402 - as above


def test_a_part_runs_its_ranks_and_writes_what_they_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            str(STUDIES / "two_gpus.py"),
            "--device",
            "cpu",
            "--only",
            "killed",
            "--out",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 expectations hold" in done.stdout
    kept = json.loads((tmp_path / "two_gpus.json").read_text())
    assert kept["told"]["killed"]["codes"][1] == -9
    assert (tmp_path / "two_gpus.md").read_text().count("| holds |") == 4


@pytest.mark.parametrize("part", two_gpus.PARTS, ids=lambda part: part.name)
def test_ranks_that_tell_nothing_fail_every_part(part: two_gpus.Part) -> None:
    ran = two_gpus_expected.Ran(told=[{}, {}], codes=[1, 1], tails=["a traceback", ""])
    found = two_gpus.judge(part, ran, gpu=True)
    assert not all(each.holds for each in found)


def test_a_rank_that_does_not_end_is_stopped_and_fails_its_part(tmp_path: Path) -> None:
    part = two_gpus.PARTS[0]
    ran = two_gpus.run(part, "cpu", 0.2, tmp_path)
    found = two_gpus.judge(part, ran, gpu=False)
    assert ran.codes == [None]
    assert [each.what for each in found if not each.holds][-1] == "rank 0 ends by itself"
