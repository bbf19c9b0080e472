"""``kernelmark audit`` as a user runs it: a real reading on the CPU, and every exit code."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from kernelmark import audit as package
from kernelmark.audit import Audit, AuditOptions
from kernelmark.audit.result import Failure, Setting, conclude
from kernelmark.cli.machine import audit
from kernelmark.records import DeviceRecord, Environment
from tests.forked import run_afresh, run_forked

QUICK = ("--device", "cpu", "--repeat", "1", "--only", "host-warm", "--only", "torch-timer")


def kernelmark(*arguments: str, start: Any = run_forked) -> subprocess.CompletedProcess[str]:
    return start("kernelmark", "audit", *arguments)


def test_a_real_reading_is_shown_and_written(tmp_path: Path) -> None:
    done = kernelmark(*QUICK, "--out", str(tmp_path / "new"), start=run_afresh)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in (
        "add of 256 floats",
        "matmul 512³ float32",
        "host-warm",
        "torch-timer",
        "bias: median over",
        "INSTRUMENTS",
    ):
        assert word in done.stdout
    assert "bias: median over" in done.stdout
    assert "reading with host-warm, torch-timer" in done.stderr
    told = json.loads((tmp_path / "new" / "audit.json").read_text(encoding="utf-8"))
    assert len(told["readings"]) == 10
    assert all(each["median_ns"] > 0 for each in told["readings"])
    assert "| softmax 512² float32 |" in (tmp_path / "new" / "audit.md").read_text(encoding="utf-8")


def test_json_on_stdout_is_nothing_but_json() -> None:
    done = kernelmark("--device", "cpu", "--repeat", "1", "--only", "host-warm", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["reference"] == "host-warm"
    assert told["limits"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--device", "cpu", "--only", "nvbench"), "no instrument 'nvbench' for cpu"),
        (("--device", "cpu", "--repeat", "0"), "at least 1"),
        (("--device", "no device"), "is no device"),
        (("--no-such-option",), "No such option"),
    ],
)
def test_what_no_run_could_do_ends_with_two(arguments: tuple[str, ...], message: str) -> None:
    done = kernelmark(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert "reading with" not in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_ends_with_three() -> None:
    assert kernelmark("--device", "cuda").returncode == 3


def test_a_folder_that_cannot_be_written_ends_with_three_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = kernelmark(*QUICK, "--out", str(tmp_path / "file" / "below"))
    assert done.returncode == 3
    assert "choose another place" in done.stderr
    assert "reading with" not in done.stderr


def test_a_doubt_ends_with_one_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubtful(device: object, options: AuditOptions, **_: object) -> Audit:
        record = DeviceRecord(kind="cpu", name="A CPU")
        environment = Environment(kernelmark="0.1.0", python="3.11", platform="Linux")
        from kernelmark.audit.instruments import calls_for, instruments_for

        setting = Setting(
            record, environment, "2026-03-01", "host", calls_for("cpu"), instruments_for("cpu"), 1, ("host",)
        )
        unavailable = Failure("torch-timer", "not here", unavailable=True)
        return conclude(setting, [Failure("host", "its process died of SIGSEGV"), unavailable])

    monkeypatch.setattr(package, "audit", doubtful)
    done = CliRunner().invoke(audit, ["--device", "cpu"])
    assert done.exit_code == 1
    assert "no reading: its process died of SIGSEGV" in done.output
    assert "DOUBTS\n\n  host gave no reading: its process died of SIGSEGV" in done.output
    assert "unavailable: not here" in done.output
