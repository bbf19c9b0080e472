"""The audit on a real device: each instrument in its process, and the default timer within its limits."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]


def _audited(folder: Path, *only: str, runs: int = 2) -> dict:
    words = [word for name in only for word in ("--only", name)]
    done = subprocess.run(
        [sys.executable, "-m", "kernelmark", "audit", "--repeat", str(runs), "--out", str(folder), *words],
        capture_output=True,
        text=True,
        timeout=350,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return json.loads((folder / "audit.json").read_text(encoding="utf-8"))


def _medians(told: dict, instrument: str) -> dict[str, float]:
    return {each["call"]: each["median_ns"] for each in told["readings"] if each["instrument"] == instrument}


@pytest.mark.spec("X7")
def test_profilers_that_cannot_share_a_process_all_read_the_five_calls(tmp_path: Path) -> None:
    names = ("kineto", "cupti", "proton", "cudagraph_proton", "device_events")
    told = _audited(tmp_path, *names)
    assert {each["name"]: each["status"] for each in told["instruments"]} == dict.fromkeys(names, "read")
    longest = _medians(told, "cupti")["add of 256 MiB"]
    for name in names:
        assert _medians(told, name)["add of 256 MiB"] == pytest.approx(longest, rel=0.05)


@pytest.mark.skipif(shutil.which("ncu") is None, reason="needs ncu on the PATH")
def test_the_default_timer_agrees_with_ncu_on_the_long_calls(tmp_path: Path) -> None:
    told = _audited(tmp_path, "cupti", "ncu", runs=3)
    status = next(each["status"] for each in told["instruments"] if each["name"] == "ncu")
    if status.startswith("unavailable"):
        pytest.skip(status)
    assert status == "read"
    assert told["reference"] == "ncu"
    against = [each for each in told["limits"] if "against ncu" in each["what"]]
    assert [each["kept"] for each in against] == [True] * 3, against
