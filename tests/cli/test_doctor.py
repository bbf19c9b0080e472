"""``kernelmark doctor`` as a user runs it, on this machine and on made-up findings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelmark import doctor as examination
from kernelmark.cli.machine import SEVERITIES, doctor
from kernelmark.doctor import Finding, Severity

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = {"torch", "triton", "numpy", "pynvml", "cupti"}


def kernelmark(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernelmark", *arguments],
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )


def test_this_machine_is_examined_and_every_line_that_is_not_well_has_its_fix() -> None:
    done = kernelmark("doctor", "--json")
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert done.returncode == SEVERITIES[found["severity"]][0]
    assert {"torch", "NVIDIA", "instruments", "host", "caches", "roofline"} <= {
        each["subject"] for each in found["findings"]
    }
    assert {each["what"] for each in found["findings"]} >= {
        "best device",
        "timer host",
        "load",
        "cold is cold",
    }
    assert not [each for each in found["findings"] if each["severity"] != "ok" and not each["fix"]]
    assert all(each["found"] for each in found["findings"])


def test_the_table_of_this_machine_names_each_subject_once_and_ends_with_a_verdict() -> None:
    done = kernelmark("doctor", COLUMNS="160")
    assert done.returncode in {code for code, *_ in SEVERITIES.values()}
    assert done.stderr == ""
    for subject in ("torch", "NVIDIA", "instruments", "host", "caches", "roofline"):
        assert len(re.findall(rf"^{subject} +\S", done.stdout, re.MULTILINE)) == 1
    assert "best device" in done.stdout.splitlines()[-1] or "warnings" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("command", ["doctor", "calibrate"])
def test_asking_for_help_imports_no_framework(command: str) -> None:
    program = (
        "import sys; from kernelmark import cli\n"
        f"try: cli.main(['{command}', '--help'])\n"
        "except SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Exits with 1" in done.stdout
    assert not FRAMEWORKS & set(done.stderr.split())


@pytest.mark.parametrize(
    ("severity", "code", "verdict"),
    [
        (Severity.OK, 0, "everything that this machine's best device needs works"),
        (Severity.NOTE, 0, "a note"),
        (Severity.WARNING, 1, "wrongly or with doubt"),
        (Severity.MISSING, 3, "missing"),
    ],
)
def test_the_gravest_finding_decides_how_the_command_ends(
    monkeypatch: pytest.MonkeyPatch, severity: Severity, code: int, verdict: str
) -> None:
    found = {"torch": (Finding("torch", Severity.OK, "2.11"), Finding("x [y]", severity, "found", "do it"))}
    monkeypatch.setattr(examination, "read_machine", lambda: None)
    monkeypatch.setattr(examination, "examine", lambda machine: found)
    done = CliRunner().invoke(doctor, [])
    assert done.exit_code == code
    assert verdict in done.output.splitlines()[-1]
    assert "x [y]" in done.output
    assert "fix: do it" in done.output
    as_json = CliRunner().invoke(doctor, ["--json"])
    assert as_json.exit_code == code
    assert json.loads(as_json.output)["severity"] == severity


def test_every_severity_has_a_code_that_the_page_on_exit_codes_promises() -> None:
    assert set(SEVERITIES) == {each.value for each in Severity}
    page = (ROOT / "docs" / "exit-codes.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| `kernelmark doctor`"))
    cells = [cell.strip() for cell in row.strip("|").split("|")][1:]
    for code, cell in enumerate(cells):
        told = {severity for severity in SEVERITIES if re.search(rf"\b{severity}\b", cell)}
        assert told == {severity for severity, (its, *_) in SEVERITIES.items() if its == code}, cell
