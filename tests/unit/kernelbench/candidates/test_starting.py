"""A process for a device that a fork could not use starts from nothing, and ends as a forked one does."""

from __future__ import annotations

from pathlib import Path

from kernelmark.kernelbench.candidates.starting import starter_for
from kernelmark.prefork import Limits


def test_a_process_from_nothing_ends_with_its_status_or_at_its_limit(tmp_path: Path) -> None:
    with starter_for("cuda:0") as starter:
        ended = starter.run(["worker", str(tmp_path)], log=tmp_path / "log.txt", limits=Limits(60.0))
        assert not ended.timed_out
        assert ended.code != 0  # there is no job in the folder
        assert "job.json" in ended.output
        late = starter.run(["worker", str(tmp_path)], log=tmp_path / "late.txt", limits=Limits(0.01))
        assert late.timed_out
