"""A process for a device that a fork could not use starts from nothing, and ends as a forked one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.kernelbench.candidates.starting import starter_for
from kernelmark.prefork import Limits


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_process_ends_with_its_status_or_at_its_limit(tmp_path: Path, device: str) -> None:
    with starter_for(device) as starter:
        ended = starter.run(["worker", str(tmp_path)], log=tmp_path / "log.txt", limits=Limits(60.0))
        assert not ended.timed_out
        assert ended.code != 0  # there is no job in the folder
        assert "job.json" in ended.output + ended.errors
        late = starter.run(["worker", str(tmp_path)], log=tmp_path / "late.txt", limits=Limits(0.01))
        assert late.timed_out or late.code != 0
