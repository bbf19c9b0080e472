"""Child processes: real ones, which end in order, late, badly, or leave others behind."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from kernelmark.process import Ended, death_in_words, run_child


def run(program: str, folder: Path, *, limit_s: float = 60) -> Ended:
    return run_child([sys.executable, "-c", program], log=folder / "log", limit_s=limit_s)


def test_one_that_ends_in_order_has_no_death_and_its_output_is_kept(tmp_path: Path) -> None:
    ended = run("import sys; print('out'); print('err', file=sys.stderr)", tmp_path)
    assert ended.death == ""
    assert ended.code == 0
    assert sorted(ended.output.splitlines()) == ["err", "out"]


@pytest.mark.parametrize(
    ("program", "death", "code"),
    [
        ("raise SystemExit(3)", "its process ended with status 3", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "its process died of SIGSEGV", -11),
    ],
)
def test_a_death_is_told_in_words(tmp_path: Path, program: str, death: str, code: int) -> None:
    ended = run(program, tmp_path)
    assert ended.death.startswith(death)
    assert ended.code == code


def test_one_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True); time.sleep(600)"
    )
    ended = run(program, tmp_path, limit_s=3)
    assert ended.death == "it did not end within 3 s"
    assert ended.code is None
    assert ended.wall_s < 60
    grandchild = int(ended.output)
    for _ in range(100):
        if not _is_running(grandchild):
            break
        time.sleep(0.05)
    assert not _is_running(grandchild)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_only_the_last_lines_of_a_long_output_are_kept(tmp_path: Path) -> None:
    ended = run("for i in range(5000): print(i)", tmp_path)
    assert ended.output.splitlines() == [str(i) for i in range(4975, 5000)]


def test_an_unknown_signal_and_an_early_end_have_words_too() -> None:
    assert death_in_words(-64) == "its process died of SIGRTMAX"
    assert "signal 200" in death_in_words(-200)
    assert "before its work was done" in death_in_words(0)
