"""What became of a candidate survives a file; a line that was cut short does not spoil the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.errors import UsageError
from kernelmark.kernelbench.candidates.judged import KEPT, Judged, Speedup, read_judged, take_up
from kernelmark.kernelbench.statuses import Status


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
