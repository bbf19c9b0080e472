"""What became of a candidate survives a file; a line that was cut short does not spoil the others."""

from __future__ import annotations

from pathlib import Path

from kernelmark.kernelbench.candidates.judged import Judged, Speedup, read_judged
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
