"""``kernelmark calibrate`` as a user runs it; its real measurements are quick, or marked slow."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelmark import calibration
from kernelmark.calibration import Outcome, Reading
from kernelmark.cli.machine import calibrate
from kernelmark.records import DeviceRecord
from kernelmark.roofline import Calibration, Figure, Profile, Rate
from kernelmark.roofline.profiles import read_profile
from tests.forked import run_afresh, run_forked

CPU = DeviceRecord(kind="cpu", name="Example CPU X1")
PROFILE = Profile(
    name="Example CPU X1, 2 threads, as measured",
    kind="cpu",
    match=("Example CPU X1",),
    bandwidth=Figure(28e9, "measured"),
    flops={Rate.FLOAT32: Figure(347e9, "measured"), Rate.INT8: Figure(1e12, "a datasheet")},
    calibration=Calibration(
        "2026-01-02 03:04 UTC",
        {"threads": "2", "capability": ""},
        {
            "read_bytes_per_s": 20e9,
            "copy_bytes_per_s": 28e9,
            "short_float32_flops_per_s": 347e9,
            "sustained_float32_flops_per_s": 300e9,
        },
    ),
)
READINGS = (
    Reading("host", "nothing", 62.5, 0.0, key="host_nothing_ns"),
    Reading("host", "a copy that moves 1.00 MiB", 2e6, 1e6, "50.0 % of the best rate"),
    Reading("cupti", "not usable here", note="cupti is not installed"),
)
OUTCOME = Outcome(CPU, PROFILE, READINGS, path=Path("kept") / "here.yaml")


def kernelmark(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_forked("kernelmark", *arguments, env={**os.environ, **environment})


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """Give the outcome in a list, so that a test may put another one in its place."""
    held = [OUTCOME]
    monkeypatch.setattr(calibration, "calibrate", lambda device, *, quick: held[0])
    return held


@pytest.mark.usefixtures("outcome")
def test_the_ceilings_the_instruments_and_the_place_are_shown() -> None:
    done = CliRunner().invoke(calibrate, ["--device", "cpu"], env={"COLUMNS": "160"})
    assert done.exit_code == 0
    lines = [" ".join(line.split()) for line in done.output.splitlines()]
    assert "read 20.00 GB/s" in lines
    assert "float32 product 347.0 GFLOP/s 300.0 GFLOP/s" in lines
    assert not [line for line in lines if line.startswith("int8")]  # it was not measured
    assert "host nothing 62.50 ns 0 ns" in lines
    assert "host a copy that moves 1.00 MiB 2.000 ms at least 1.000 ms 50.0 % of the best rate" in lines
    assert "cupti not usable here cupti is not installed" in lines
    assert "measured 2026-01-02 03:04 UTC; threads 2" in lines
    assert lines[-1] == f"kept in {Path('kept') / 'here.yaml'}"


def test_a_doubt_is_told_and_ends_with_1(outcome: list[Outcome]) -> None:
    outcome[0] = Outcome(CPU, PROFILE, READINGS, doubts=("host, nothing: slow",), overruled_by="mine.yaml")
    done = CliRunner().invoke(calibrate, ["--device", "cpu"])
    assert done.exit_code == 1
    assert "doubt: host, nothing: slow" in done.output
    assert "nothing is kept" in done.output
    assert "mine.yaml counts before it" in done.output


@pytest.mark.usefixtures("outcome")
def test_json_holds_all_of_it() -> None:
    done = CliRunner().invoke(calibrate, ["--device", "cpu", "--json"])
    found = json.loads(done.output)
    assert PROFILE.calibration is not None
    assert found["measured"] == PROFILE.calibration.measured
    assert found["readings"][0] == {
        "timer": "host",
        "what": "nothing",
        "read_ns": 62.5,
        "expected_ns": 0.0,
        "note": "",
        "doubtful": False,
    }
    assert (found["path"], found["overruled_by"]) == (str(OUTCOME.path), None)


@pytest.mark.parametrize(("name", "code"), [("xpu:7", 3), ("3", 2), ("cuda:99", 3)])
def test_a_device_that_is_not_there_or_is_none_is_told(name: str, code: int) -> None:
    done = kernelmark("calibrate", "--device", name)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("error: ")


def test_a_quick_look_at_this_cpu_measures_all_of_it_and_keeps_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = run_afresh("kernelmark", "calibrate", "--device", "cpu", "--quick", "--json", env=environment)
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert done.returncode == (1 if found["doubts"] else 0)
    assert {"write_bytes_per_s", "short_bfloat16_flops_per_s", "sustained_float64_flops_per_s"} <= set(
        found["measured"]
    )
    assert {"host_nothing_ns", "host_spin_ns"} <= set(found["measured"])
    assert found["date"]
    assert found["conditions"]["threads"]
    assert not list(tmp_path.rglob("*.yaml"))


@pytest.mark.slow
def test_this_cpu_is_calibrated_and_kept_unless_others_use_it(tmp_path: Path) -> None:
    done = kernelmark("calibrate", "--device", "cpu", "--json", XDG_CACHE_HOME=str(tmp_path))
    kept = list(tmp_path.rglob("*.yaml"))
    if done.returncode == 3:
        assert "other processes took" in done.stderr
        assert not kept
        return
    found = json.loads(done.stdout)
    assert [str(path) for path in kept] == [found["path"]]
    profile = read_profile(kept[0])
    assert profile.calibration is not None
    assert dict(profile.calibration.measured) == found["measured"]
