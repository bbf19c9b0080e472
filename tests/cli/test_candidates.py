"""``kernelmark kernelbench --candidates`` as a user runs it, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOFTMAX = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {}
"""
QUICK = ("--device", "cpu", "--baselines", "eager", "--iterations", "8", "--cache", "warm", "--seeds", "2")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "KERNELBENCH_ROOT"}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "kernelmark",
            "kernelbench",
            "--candidates",
            "given",
            "--out",
            "out",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=folder,
        env=environment,
    )


def write(folder: Path, name: str, answer: str) -> None:
    path = folder / "given" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SOFTMAX.format(answer))


@pytest.mark.slow
def test_candidates_are_judged_scored_kept_taken_up_again_and_held_to_a_list(tmp_path: Path) -> None:
    write(tmp_path, "level_1_problem_8_sample_0_kernel.py", "torch.softmax(x, dim=1)")
    write(tmp_path, "level_1_problem_8_sample_1_kernel.py", "torch.zeros_like(x)")
    write(tmp_path, "level_1_problem_6_sample_0_kernel.py", "torch.relu(x)")
    first = run(tmp_path, *QUICK, "--keep", "kept.txt")
    assert first.returncode == 1, first.stdout + first.stderr
    assert "[2/3] level_1_problem_8_sample_0_kernel.py: verified, " in first.stdout
    assert "sample_1_kernel.py: wrong: candidate does not match the reference" in first.stdout
    assert "3 candidates: 2 verified, 1 wrong" in first.stdout
    told = json.loads((tmp_path / "out" / "candidates.json").read_text())
    assert [each["status"] for each in told["candidates"]] == ["verified", "verified", "wrong"]
    each, best = told["fast_p"]
    assert (each["attempted"], each["estimated"][0], best["attempted"], best["estimated"][0]) == (
        3,
        2 / 3,
        2,
        1.0,
    )
    page = (tmp_path / "out" / "candidates.md").read_text()
    assert "## fast_p" in page
    assert "| 66.7 % |" in page
    assert "level_1_problem_8_sample_1_kernel.py: wrong" in (tmp_path / "kept.txt").read_text()

    # one changes, and what is kept is not run again
    write(tmp_path, "level_1_problem_6_sample_0_kernel.py", "x")
    lines = (tmp_path / "out" / "candidates.jsonl").read_text().splitlines()
    again = run(tmp_path, *QUICK, "--resume", "--expect", "kept.txt")
    assert again.returncode == 1
    assert "worse: level_1_problem_6_sample_0_kernel.py: wrong, expected verified" in again.stderr
    after = (tmp_path / "out" / "candidates.jsonl").read_text().splitlines()
    assert after[:3] == lines
    assert len(after) == 4

    # only what is as the list has it
    write(tmp_path, "level_1_problem_6_sample_0_kernel.py", "torch.relu(x)")
    last = run(tmp_path, *QUICK, "--kernel", "level1/8_", "--resume", "--expect", "kept.txt")
    assert last.returncode == 0, last.stdout + last.stderr
    assert "2 candidates: 1 verified, 1 wrong" in last.stdout

    # asked for in another way, it is refused, and nothing is touched
    kept = (tmp_path / "out" / "candidates.jsonl").read_bytes()
    other = run(tmp_path, *QUICK, "--resume", "--dtype", "bf16")
    assert other.returncode == 2, other.stdout + other.stderr
    assert "was made with dtype f32, and this one asks for bf16" in other.stderr
    assert (tmp_path / "out" / "candidates.jsonl").read_bytes() == kept


@pytest.mark.slow
def test_inductor_is_timed_beside_eager_in_another_type_with_numbers_and_a_level(tmp_path: Path) -> None:
    write(tmp_path, "8_anything.py", "torch.softmax(x, dim=1)")
    done = run(
        tmp_path, "--suite", "own", "--level", "1", "--dtype", "bf16", "--iterations", "8", "--device", "cpu",
        "--seeds", "1", "--mode", "eval", "--tolerance", "0.05",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " over eager, " in done.stdout
    assert " over inductor" in done.stdout
    assert "mode: eval" in done.stdout
    assert "cache: cold" in done.stdout


@pytest.mark.parametrize(
    ("files", "arguments", "words"),
    [
        ([], (), "there is no such folder"),
        (["1_any.py"], (), "gives a number and no level; add --level"),
        (["level1/77_any.py"], (), "level1 has no problem 77"),
        (["level1/8_a.py"], ("--kernel", "level1/6_"), "none of its 1 files is for a chosen kernel"),
        (["level1/8_a.py"], ("--benchmark",), "--benchmark with --candidates"),
        (["level1/8_a.py"], ("--infer-shapes",), "--infer-shapes with --candidates"),
        (["level1/8_a.py"], ("--jobs", "2"), "--jobs 2 with --candidates"),
        (["level1/8_a.py"], ("--seeds", "0"), "--seeds 0: give a whole number of at least 1"),
        (["level1/8_a.py"], ("--threads", "1"), "No such option"),
        (["level1/8_a.py"], ("--baselines", "flash"), "'flash' is none"),
        (["level1/8_a.py"], ("--dtype", "i8"), "--dtype i8"),
    ],
)
def test_what_cannot_be_run_as_asked_ends_with_2_before_anything_runs(
    tmp_path: Path, files: list[str], arguments: tuple[str, ...], words: str, capsys, monkeypatch
) -> None:
    from kernelmark.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    for name in files:
        write(tmp_path, name, "x")
    with pytest.raises(SystemExit) as ended:
        main.main(["kernelbench", "--candidates", "given", "--device", "cpu", *arguments])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_without_its_tree_kernelbenchs_own_problems_are_the_environments_lack(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    from kernelmark.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    write(tmp_path, "1_any.py", "x")
    with pytest.raises(SystemExit) as ended:
        main.main(["kernelbench", "--candidates", "given", "--device", "cpu", "--level", "1"])
    assert ended.value.code == 3
    assert "its tree was not named" in capsys.readouterr().err
